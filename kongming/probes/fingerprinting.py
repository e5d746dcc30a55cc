"""Take a fingerprint: time a suite of surrogates in short interleaved rounds on one CPU."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from kongming.probes.binary import Event, Microbench
from kongming.probes.cgroups import cpu_quota
from kongming.probes.node import allowed_cpu, node_facts
from kongming.probes.passive import difference, snapshot
from kongming.probes.recording import Record, assemble
from kongming.probes.suite import load_suite
from kongming.records import moments
from kongming.records.errors import InputError, ProbeError
from kongming.records.fingerprint import Fingerprint, NodeFacts

WINDOWS_S = {"quick": 0.5, "standard": 2.0, "full": 30.0}
"""Measuring time of each suite, in seconds."""

CUSTOM = "custom"
"""Suite name of a fingerprint of individually selected surrogates."""

SHARED_CHUNK_S = 0.3
"""Chunk length on a shared or throttled CPU. It must exceed the scheduler's time slices and the
100 ms period of a quota: a shorter chunk sees either no interference or only a stall."""

_LONGEST_CHUNK_S = 0.1
_SILENCE_S = 120.0


@dataclass(frozen=True, slots=True)
class Progress:
    """Progress of a fingerprint: ``done`` of ``total`` bytes laid out or chunks measured."""

    phase: Literal["layout", "measuring"]
    done: float
    total: float
    name: str = ""


@dataclass(frozen=True, slots=True)
class Schedule:
    """Division of a window: total seconds, seconds per chunk, maximum number of rounds."""

    seconds: float
    chunk: float
    rounds: int
    whole_blocks: bool = False

    def arguments(self) -> list[str]:
        """Return the options for ``kongming-microbench probe``."""
        options = ["--seconds", f"{self.seconds:.6g}", "--chunk", f"{self.chunk:.6g}"]
        options += ["--rounds", str(self.rounds)]
        return [*options, "--whole-blocks"] if self.whole_blocks else options


def schedule(
    suite: str,
    count: int,
    *,
    steady: bool = False,
    seconds: float | None = None,
    chunk: float | None = None,
    rounds: int | None = None,
) -> Schedule:
    """Divide a suite's window among ``count`` surrogates. Pure.

    ``steady`` is for a shared or throttled CPU: one round of long chunks, whatever the total
    time. Explicit values (seconds, chunk, rounds) take precedence.
    """
    whole_blocks = suite == "full"
    window = WINDOWS_S.get(suite, WINDOWS_S["standard"]) if seconds is None else seconds
    if steady:
        chunk = SHARED_CHUNK_S if chunk is None else chunk
        rounds = max(1, int(window / (chunk * count))) if rounds is None else rounds
        window = max(window, chunk * count * rounds) if seconds is None else window
        return Schedule(window, chunk, rounds, whole_blocks)
    if rounds is None:
        if chunk is None:
            # At least two rounds, so that one phase of a neighbour does not dominate a reading;
            # whole blocks take as long as they need, which leaves less time for the others.
            chunk = min(_LONGEST_CHUNK_S, window / (2 * count) * (0.5 if whole_blocks else 1.0))
        rounds = max(1, round(window / (chunk * count)))
        rounds = min(rounds, 3) if whole_blocks else rounds
    elif chunk is None:
        chunk = window / (rounds * count)
    return Schedule(window, chunk, rounds, whole_blocks)


def take_fingerprint(
    node: NodeFacts | None = None,
    suite: str = "standard",
    names: Sequence[str] | None = None,
    cpu: int | None = None,
    directory: str | Path | None = None,
    seconds: float | None = None,
    chunk: float | None = None,
    rounds: int | None = None,
    cgroup_procs: Sequence[str | Path] = (),
    on_progress: Callable[[Progress], None] | None = None,
    *,
    shared_core: bool = False,
    seed: int | None = None,
) -> Fingerprint:
    """Time the surrogates of ``suite`` (or only ``names`` of them) once on ``cpu``.

    ``cpu`` is the first allowed one by default, ``directory`` the I/O folder of
    ``folders.io_folder``. ``shared_core`` means that a neighbour runs on the same CPU: each
    surrogate then gets 300 ms or more, as it also does under a CPU quota.

    A surrogate that fails has a reading with the reason; if the binary dies, so have the
    surrogates that were not measured yet.

    Raises:
        UnknownNameError: a suite or surrogate does not exist.
        InputError: the CPU is not allowed or the folder does not exist.
        ProbeError: the binary is missing, or ended before anything was measured.
    """
    node = node_facts() if node is None else node
    cpu = allowed_cpu(node, cpu)
    available = load_suite(node, directory)
    selected = available.names_of(suite)
    suite_name = suite
    if names is not None:
        for name in names:
            available.surrogate(name)
        if tuple(dict.fromkeys(names)) != selected:
            suite_name = CUSTOM
        selected = tuple(dict.fromkeys(names))
    if not selected:
        raise InputError("There is nothing to measure.", field="surrogates")
    quota = cpu_quota(node.cgroup)
    plan = schedule(
        suite,
        len(selected),
        steady=shared_core or (quota is not None and quota < len(node.cpus)),
        seconds=seconds,
        chunk=chunk,
        rounds=rounds,
    )
    arguments = available.probe_arguments(cpu, seed)
    record = Record()
    failure = None
    started_at, before = moments.now(), snapshot()
    with Microbench(
        [*arguments, *plan.arguments(), *selected], cgroup_procs=cgroup_procs
    ) as process:
        try:
            while (event := process.read(_SILENCE_S)) is not None:
                record.feed(event)
                if record.ready and event.get("event") == "ready":
                    # The window begins after the set-up.
                    started_at, before = moments.now(), snapshot()
                if on_progress is not None:
                    _report_progress(on_progress, event, record, plan.rounds * len(selected))
            process.finish()
        except (ProbeError, TimeoutError) as error:
            failure = error.message if isinstance(error, ProbeError) else str(error)
        after = snapshot()
        if failure is None and not record.ended:
            failure = process.failure()
    if failure is not None and not record.chunks:
        raise ProbeError(failure)
    return assemble(
        record,
        node=node,
        suite=available,
        suite_name=suite_name,
        names=selected,
        cpu=cpu,
        started_at=started_at,
        passive=difference(before, after),
        warnings=() if failure is None else (f"The measurement ended early: {failure}",),
        unreached="was not reached within the time." if failure is None else failure,
    )


def _report_progress(
    on_progress: Callable[[Progress], None], event: Event, record: Record, chunks: int
) -> None:
    kind = event.get("event")
    if kind == "layout" and record.layout is not None:
        on_progress(Progress("layout", *record.layout))
    elif kind in ("ready", "chunk", "error"):
        done = len(record.chunks) + len(record.errors)
        on_progress(Progress("measuring", done, max(chunks, done), str(event.get("name", ""))))
