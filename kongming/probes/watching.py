"""Keeps probing in rounds until told to stop, so that only chunks inside chosen windows count."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from kongming.errors import ProbeError
from kongming.fingerprint import Fingerprint, NodeFacts
from kongming.probes.aggregation import Chunk
from kongming.probes.binary import GRACE_S, Microbench
from kongming.probes.node import allowed_cpu, node_facts
from kongming.probes.passive import difference, snapshot
from kongming.probes.recording import Record, assemble, utc_now
from kongming.probes.suite import Suite, load_suite

# Nothing runs for ever, not even when this process hangs while it holds the lifeline.
_LONGEST_S = 6 * 3600


@dataclass(frozen=True, slots=True)
class Watched:
    """What a watch saw: raw chunks with their times, reasons of failed surrogates, and all of it
    as a fingerprint (over ``windows`` if those were given to ``stop``)."""

    chunks: tuple[Chunk, ...]
    errors: Mapping[str, str]
    fingerprint: Fingerprint


class Watch:
    """Probes on one CPU from entering the context until ``stop``. Made by ``watch``.

    ``failure`` is why the binary ended by itself, or None.

    Entering starts it and waits until it is ready. The thread that enters has to live until the
    end (the kernel ends the binary with it).
    """

    def __init__(
        self,
        names: Sequence[str],
        *,
        node: NodeFacts,
        suite: Suite,
        suite_name: str,
        cpu: int,
        chunk: float,
        cgroup_procs: Sequence[str | Path],
        ready_timeout_s: float,
    ) -> None:
        self._names = tuple(dict.fromkeys(names))
        self._node, self._suite, self._suite_name = node, suite, suite_name
        self._cpu, self._chunk = cpu, chunk
        self._cgroup_procs = cgroup_procs
        self._ready_timeout_s = ready_timeout_s
        self._record = Record()
        self.failure: str | None = None
        self._stopping = False
        self._ready = threading.Event()
        self._running: Microbench | None = None
        self._thread: threading.Thread | None = None
        self._stopped: Watched | None = None

    def __enter__(self) -> Watch:
        arguments = self._suite.probe_arguments(self._cpu)
        arguments += ["--chunk", f"{self._chunk:.6g}", "--seconds", str(_LONGEST_S), *self._names]
        self._running = Microbench(arguments, cgroup_procs=self._cgroup_procs)
        self._thread = threading.Thread(
            target=self._listen, args=(self._running,), name="kongming-watch", daemon=True
        )
        self._thread.start()
        try:
            if not self._ready.wait(self._ready_timeout_s):
                raise ProbeError(f"The probes were not ready in {self._ready_timeout_s:g} s.")
            self.check()
        except BaseException:
            self._end()
            raise
        self._started_at, self._before = utc_now(), snapshot()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._end()

    def chunks(self) -> tuple[Chunk, ...]:
        """The chunks so far."""
        return tuple(self._record.chunks)

    def errors(self) -> dict[str, str]:
        """Surrogates that failed so far, with the reason."""
        return dict(self._record.errors)

    def check(self) -> None:
        """Raises ProbeError if the binary has ended by itself."""
        if self.failure is not None:
            raise ProbeError(self.failure)

    def stop(self, windows: Sequence[tuple[int, int]] | None = None) -> Watched:
        """Ends the probing. With ``windows`` the fingerprint has only chunks wholly inside one.

        Windows are (start_ns, end_ns) of CLOCK_MONOTONIC, as time.monotonic_ns gives them.
        """
        if self._stopped is None:
            after = snapshot()
            self._end()
            fingerprint = assemble(
                self._record,
                node=self._node,
                suite=self._suite,
                suite_name=self._suite_name,
                names=self._names,
                cpu=self._cpu,
                started_at=self._started_at,
                passive=difference(self._before, after),
                windows=windows,
                unreached="was not reached within the windows.",
            )
            self._stopped = Watched(self.chunks(), self.errors(), fingerprint)
        return self._stopped

    def _listen(self, running: Microbench) -> None:
        try:
            while (event := running.read()) is not None:
                self._record.feed(event)
                if self._record.ready:
                    self._ready.set()
            if not self._stopping:
                self.failure = running.failure()
        except ProbeError as error:
            self.failure = error.message
        finally:
            self._ready.set()

    def _end(self) -> None:
        if self._running is None or self._thread is None:
            return
        self._stopping = True
        running, self._running = self._running, None
        try:
            running.signal(signal.SIGTERM)
            deadline = time.monotonic() + GRACE_S
            self._thread.join(max(0.0, deadline - time.monotonic()))
            if self._thread.is_alive():
                running.kill()
                self._thread.join()
        finally:
            running.close()


def watch(
    names: Sequence[str],
    node: NodeFacts | None = None,
    suite: str = "custom",
    cpu: int | None = None,
    directory: str | Path | None = None,
    chunk: float = 0.05,
    cgroup_procs: Sequence[str | Path] = (),
    *,
    ready_timeout_s: float = 300.0,
) -> Watch:
    """Probes ``names`` round after round until stopped; a context manager.

    ``suite`` only names the suite in the fingerprint; ``chunk`` is the time of one slice in
    seconds; the default CPU is the first allowed one.

    Raises:
        UnknownNameError, InputError: a surrogate does not exist, a folder neither.
        ProbeError: on entering: it did not start, or was not ready in ``ready_timeout_s``.
    """
    node = node_facts() if node is None else node
    listed = load_suite(node, directory)
    for name in names:
        listed.surrogate(name)
    return Watch(
        names,
        node=node,
        suite=listed,
        suite_name=suite,
        cpu=allowed_cpu(node, cpu),
        chunk=chunk,
        cgroup_procs=cgroup_procs,
        ready_timeout_s=ready_timeout_s,
    )
