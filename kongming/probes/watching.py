"""Continuous probing in rounds until stopped, restricted to chunks inside chosen windows."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from kongming.probes.aggregation import Chunk
from kongming.probes.binary import GRACE_S, Microbench
from kongming.probes.node import allowed_cpu, node_facts
from kongming.probes.passive import difference, snapshot
from kongming.probes.recording import Record, assemble
from kongming.probes.suite import Suite, load_suite
from kongming.records import moments
from kongming.records.errors import ProbeError
from kongming.records.fingerprint import Fingerprint, NodeFacts

# Upper bound on the run time, in case this process hangs while it holds the lifeline.
_LONGEST_S = 6 * 3600


@dataclass(frozen=True, slots=True)
class Watched:
    """Result of a watch: raw chunks with their times, errors of failed surrogates, and a
    fingerprint (over ``windows`` if those were given to ``stop``)."""

    chunks: tuple[Chunk, ...]
    errors: Mapping[str, str]
    fingerprint: Fingerprint


class Watch:
    """Continuous probing on one CPU, from entering the context to ``stop``. Created by ``watch``.

    ``failure`` is the reason why the binary ended on its own, or None.

    Entering starts the binary and waits until it is ready.
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
        self._process: Microbench | None = None
        self._thread: threading.Thread | None = None
        self._stopped: Watched | None = None

    def __enter__(self) -> Watch:
        arguments = self._suite.probe_arguments(self._cpu)
        arguments += ["--chunk", f"{self._chunk:.6g}", "--seconds", str(_LONGEST_S), *self._names]
        self._process = Microbench(arguments, cgroup_procs=self._cgroup_procs)
        self._thread = threading.Thread(
            target=self._listen, args=(self._process,), name="kongming-watch", daemon=True
        )
        self._thread.start()
        try:
            if not self._ready.wait(self._ready_timeout_s):
                raise ProbeError(f"The probes were not ready in {self._ready_timeout_s:g} s.")
            self.check()
        except BaseException:
            self._end()
            raise
        self._started_at, self._before = moments.now(), snapshot()
        return self

    def __exit__(self, *_: object) -> None:
        self._end()

    def chunks(self) -> tuple[Chunk, ...]:
        """Return the chunks so far."""
        return tuple(self._record.chunks)

    def errors(self) -> dict[str, str]:
        """Return the surrogates that failed so far, with the reason."""
        return dict(self._record.errors)

    def check(self) -> None:
        """Raise ProbeError if the binary has ended on its own."""
        if self.failure is not None:
            raise ProbeError(self.failure)

    def stop(self, windows: Sequence[tuple[int, int]] | None = None) -> Watched:
        """Stop probing. With ``windows`` the fingerprint uses only chunks completely inside one.

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

    def _listen(self, process: Microbench) -> None:
        try:
            while (event := process.read()) is not None:
                if self._stopping and event.get("event") == "error":
                    continue  # its folder is removed while it still works there
                self._record.feed(event)
                if self._record.ready:
                    self._ready.set()
            if not self._stopping:
                self.failure = process.failure()
        except ProbeError as error:
            self.failure = error.message
        finally:
            self._ready.set()

    def _end(self) -> None:
        if self._process is None or self._thread is None:
            return
        self._stopping = True
        process, self._process = self._process, None
        try:
            process.signal(signal.SIGTERM)
            deadline = time.monotonic() + GRACE_S
            self._thread.join(max(0.0, deadline - time.monotonic()))
            if self._thread.is_alive():
                process.kill()
                self._thread.join()
        finally:
            process.close()


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
    """Create a context manager that probes ``names`` in rounds until stopped.

    ``suite`` only names the suite in the fingerprint; ``chunk`` is the time of one slice in
    seconds; the default CPU is the first allowed one.

    Raises:
        UnknownNameError, InputError: a surrogate or the folder does not exist.
        ProbeError: on entering: it did not start, or was not ready in ``ready_timeout_s``.
    """
    node = node_facts() if node is None else node
    available = load_suite(node, directory)
    for name in names:
        available.surrogate(name)
    return Watch(
        names,
        node=node,
        suite=available,
        suite_name=suite,
        cpu=allowed_cpu(node, cpu),
        chunk=chunk,
        cgroup_procs=cgroup_procs,
        ready_timeout_s=ready_timeout_s,
    )
