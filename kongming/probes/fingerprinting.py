"""Takes a fingerprint: times a suite of surrogates in short interleaved rounds on one CPU."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from kongming.errors import InputError, ProbeError
from kongming.fingerprint import Fingerprint, NodeFacts
from kongming.probes.aggregation import Chunk, aggregate
from kongming.probes.binary import Event, Microbench
from kongming.probes.cgroups import cpu_quota
from kongming.probes.node import allowed_cpu, node_facts
from kongming.probes.passive import difference, snapshot
from kongming.probes.recording import Record, assemble, utc_now
from kongming.probes.suite import load_suite
from kongming.probes.watching import Watch, Watched, watch

WINDOWS_S = {"quick": 0.5, "standard": 2.0, "full": 30.0}
"""Measuring time of each suite, in seconds."""

CUSTOM = "custom"
"""Suite name of a fingerprint of surrogates that were chosen by name."""

SHARED_CHUNK_S = 0.3
"""What a surrogate gets in a go where its CPU is shared or throttled: more than the scheduler's
slices and the 100 ms period of a quota, in less than which it sees nothing or a stall."""

_LONGEST_CHUNK_S = 0.1
_SILENCE_S = 120.0


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a fingerprint is: ``done`` of ``total`` bytes laid out or chunks measured."""

    phase: Literal["layout", "measuring"]
    done: float
    total: float
    name: str = ""


@dataclass(frozen=True, slots=True)
class Schedule:
    """How a window is divided: seconds in all, seconds for one chunk, rounds at the most."""

    seconds: float
    chunk: float
    rounds: int
    whole_blocks: bool = False

    def arguments(self) -> list[str]:
        """Options of ``kongming-microbench probe``."""
        given = ["--seconds", f"{self.seconds:.6g}", "--chunk", f"{self.chunk:.6g}"]
        given += ["--rounds", str(self.rounds)]
        return [*given, "--whole-blocks"] if self.whole_blocks else given


def schedule(
    suite: str,
    count: int,
    *,
    steady: bool = False,
    seconds: float | None = None,
    chunk: float | None = None,
    rounds: int | None = None,
) -> Schedule:
    """Divides a suite's window among ``count`` surrogates. Pure.

    ``steady`` is for a CPU that is shared or throttled: one round of long chunks, however long
    that takes. What the caller gives (seconds, chunk, rounds) holds.
    """
    whole = suite == "full"
    window = WINDOWS_S.get(suite, WINDOWS_S["standard"]) if seconds is None else seconds
    if steady:
        chunk = SHARED_CHUNK_S if chunk is None else chunk
        rounds = max(1, int(window / (chunk * count))) if rounds is None else rounds
        window = max(window, chunk * count * rounds) if seconds is None else window
        return Schedule(window, chunk, rounds, whole)
    if rounds is None:
        if chunk is None:
            # Two rounds at least, so that a phase of a neighbour does not decide a reading; whole
            # blocks take their own time, so that less is left for the others there.
            chunk = min(_LONGEST_CHUNK_S, window / (2 * count) * (0.5 if whole else 1.0))
        rounds = max(1, round(window / (chunk * count)))
        rounds = min(rounds, 3) if whole else rounds
    elif chunk is None:
        chunk = window / (rounds * count)
    return Schedule(window, chunk, rounds, whole)


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
    """Times the surrogates of ``suite`` (or just ``names`` of them) once on ``cpu``.

    ``cpu`` is the first allowed one by default, ``directory`` the I/O folder of
    ``folders.io_folder``. ``shared_core`` says that a neighbour runs on the same CPU: each
    surrogate then gets 300 ms or more, as it does where a CPU quota throttles.

    A surrogate that fails is a reading with its reason. If the binary dies, those it had not
    reached are.

    Raises:
        UnknownNameError: a suite or surrogate does not exist.
        InputError: the CPU is not allowed or the folder does not exist.
        ProbeError: the binary is missing, or ended before anything was measured.
    """
    node = node_facts() if node is None else node
    cpu = allowed_cpu(node, cpu)
    listed = load_suite(node, directory)
    wanted = listed.names_of(suite)
    suite_name = suite
    if names is not None:
        for name in names:
            listed.surrogate(name)
        if tuple(dict.fromkeys(names)) != wanted:
            suite_name = CUSTOM
        wanted = tuple(dict.fromkeys(names))
    if not wanted:
        raise InputError("There is nothing to measure.", field="surrogates")
    quota = cpu_quota(node.cgroup)
    plan = schedule(
        suite,
        len(wanted),
        steady=shared_core or (quota is not None and quota < len(node.cpus)),
        seconds=seconds,
        chunk=chunk,
        rounds=rounds,
    )
    arguments = listed.probe_arguments(cpu, seed)
    record = Record()
    failure = None
    started_at, before = utc_now(), snapshot()
    with Microbench([*arguments, *plan.arguments(), *wanted], cgroup_procs=cgroup_procs) as running:
        try:
            while (event := running.read(_SILENCE_S)) is not None:
                record.feed(event)
                if record.ready and event.get("event") == "ready":
                    # Set-up is no part of the window.
                    started_at, before = utc_now(), snapshot()
                if on_progress is not None:
                    _tell(on_progress, event, record, plan.rounds * len(wanted))
            running.finish()
        except (ProbeError, TimeoutError) as error:
            failure = error.message if isinstance(error, ProbeError) else str(error)
        after = snapshot()
        if failure is None and not record.ended:
            failure = running.failure()
    if failure is not None and not record.chunks:
        raise ProbeError(failure)
    return assemble(
        record,
        node=node,
        suite=listed,
        suite_name=suite_name,
        names=wanted,
        cpu=cpu,
        started_at=started_at,
        passive=difference(before, after),
        warnings=() if failure is None else (f"The measurement ended early: {failure}",),
        unreached="was not reached within the time." if failure is None else failure,
    )


def _tell(
    on_progress: Callable[[Progress], None], event: Event, record: Record, chunks: int
) -> None:
    kind = event.get("event")
    if kind == "layout" and record.layout is not None:
        on_progress(Progress("layout", *record.layout))
    elif kind in ("ready", "chunk", "error"):
        done = len(record.chunks) + len(record.errors)
        on_progress(Progress("measuring", done, max(chunks, done), str(event.get("name", ""))))


__all__ = [
    "Chunk",
    "Progress",
    "Schedule",
    "Watch",
    "Watched",
    "aggregate",
    "schedule",
    "take_fingerprint",
    "watch",
]
