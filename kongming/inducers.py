"""Load inducers as context managers that always stop and reap their processes.

Each inducer is a supervisor process with its workers, in its own session. It ends with the
context, at its deadline, and when this process dies for any reason (the lifeline pipe closes).
"""

from __future__ import annotations

import signal
import time
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kongming.probes.binary import GRACE_S, Event, Microbench
from kongming.probes.node import allowed_cpu, node_facts
from kongming.probes.suite import load_suite
from kongming.records.errors import InducerError, InputError, ProbeError
from kongming.records.fingerprint import NodeFacts
from kongming.records.run import LoadLevel

READY_TIMEOUT_S = 120.0
"""Time limit for the set-up: an I/O load may have to lay out its file on a slow device."""

ORDERLY_GRACE_S = 10.0
"""Time for an inducer to end where nothing went wrong: on a busy machine a worker may have to wait
for the processor, or for the device, and a load that is killed does not say what it did."""


@dataclass(frozen=True, slots=True)
class InducerResult:
    """Result of an inducer: ``duty`` is the busy share of wall time, averaged over its workers."""

    duty: float
    ops: float
    elapsed_s: float
    cpu_s: float

    def to_dict(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__slots__}


class Inducer:
    """Load that runs while its context is open. Created by ``induce``.

    ``pids`` are its workers' while it runs; ``result`` is set after an orderly end.
    """

    def __init__(
        self,
        level: LoadLevel,
        arguments: Sequence[str],
        *,
        cgroup_procs: Sequence[str | Path] = (),
        ready_timeout_s: float = READY_TIMEOUT_S,
    ) -> None:
        self.level = level
        self.pids: tuple[int, ...] = ()
        self.result: InducerResult | None = None
        self._arguments = list(arguments)
        self._cgroup_procs = cgroup_procs
        self._ready_timeout_s = ready_timeout_s
        self._process: Microbench | None = None
        self._ready = False
        self._error: str | None = None

    def start(self) -> None:
        """Start the load and wait until all workers are running.

        Raises:
            InducerError: it could not start; the message is the binary's own.
        """
        try:
            self._process = Microbench(self._arguments, cgroup_procs=self._cgroup_procs)
            deadline = time.monotonic() + self._ready_timeout_s
            while not self._ready:
                if not self._advance(max(0.0, deadline - time.monotonic())):
                    raise InducerError(self._end_reason())
        except TimeoutError as error:
            self.stop()
            raise InducerError(
                f"{self.level} was not ready in {self._ready_timeout_s:g} s."
            ) from error
        except ProbeError as error:
            self.stop()
            raise InducerError(f"{self.level}: {error.message}", hint=error.hint) from error
        except BaseException:
            self.stop()
            raise

    def check(self) -> None:
        """Raise InducerError if it is no longer running, after a failure or its deadline."""
        self._read_until(0.0)
        if self._process is None or self._process.ended:
            raise InducerError(self._end_reason())

    def wait(self, timeout: float | None = None) -> InducerResult | None:
        """Wait for its end (its deadline); return None if ``timeout`` seconds passed first.

        Raises:
            InducerError: it failed.
        """
        if not self._read_until(timeout):
            return None
        if self.result is None:
            raise InducerError(self._end_reason())
        return self.result

    def stop(self, grace_s: float = GRACE_S) -> InducerResult | None:
        """Stop and reap it; return its result, or None if it reported none in ``grace_s`` seconds
        and was killed."""
        if self._process is not None:
            process, self._process = self._process, None
            try:
                for event in process.stop(grace_s):
                    self._process_event(event)
                if self.result is None and self._error is None:
                    self._error = process.failure()
            finally:
                process.close()
        return self.result

    def terminate(self) -> None:
        """Tell it to end, and do not wait: ``stop`` does."""
        if self._process is not None:
            self._process.signal(signal.SIGTERM)

    def __enter__(self) -> Inducer:
        self.start()
        return self

    def __exit__(self, exception: type[BaseException] | None, *_: object) -> None:
        self.stop(ORDERLY_GRACE_S if exception is None else GRACE_S)

    def _read_until(self, timeout: float | None) -> bool:
        """Process its events; return True when it has closed its output."""
        deadline = None if timeout is None else time.monotonic() + timeout
        try:
            while self._advance(
                None if deadline is None else max(0.0, deadline - time.monotonic())
            ):
                pass
        except TimeoutError:
            return False
        except ProbeError as error:
            self._error = error.message
            self.stop()
        return True

    def _advance(self, timeout: float | None) -> bool:
        event = None if self._process is None else self._process.read(timeout)
        if event is not None:
            self._process_event(event)
        return event is not None

    def _process_event(self, event: Event) -> None:
        match event.get("event"):
            case "ready":
                self._ready = True
                self.pids = tuple(int(pid) for pid in event.get("pids", []))
            case "error":
                self._error = str(event.get("error") or "it failed.")
            case "end":
                self.result = InducerResult(
                    duty=float(event.get("duty", 0.0)),
                    ops=float(event.get("ops", 0.0)),
                    elapsed_s=float(event.get("elapsed_s", 0.0)),
                    cpu_s=float(event.get("cpu_s", 0.0)),
                )

    def _end_reason(self) -> str:
        if self._error is None and self.result is not None:
            return f"{self.level} ended after {self.result.elapsed_s:.1f} s."
        if self._error is None and self._process is not None:
            self._error = self._process.failure()
        return f"{self.level}: {self._error or 'it is not running.'}"


def induce(
    what: LoadLevel | str,
    *,
    intensity: float | None = None,
    copies: int | None = None,
    cpu: int | None = None,
    directory: str | Path | None = None,
    seconds: float | None = None,
    cgroup_procs: Sequence[str | Path] = (),
    node: NodeFacts | None = None,
    ready_timeout_s: float = READY_TIMEOUT_S,
) -> Inducer:
    """Create a load, as a context manager; entering it waits until all workers run.

    ``what`` is a load level or a surrogate's name; ``intensity`` (duty cycle, above 0 and up to
    1) and ``copies`` (worker processes) replace the level's. All workers are pinned to ``cpu``;
    without it they run anywhere. ``seconds`` is a hard deadline.

    Raises:
        UnknownNameError, InputError: no such surrogate, one that is a probe only, or a value
            out of range.
        InducerError: on entering, when it could not start.
    """
    node = node_facts() if node is None else node
    suite = load_suite(node, directory)
    surrogate = suite.inducer(what if isinstance(what, str) else what.surrogate)
    base = LoadLevel(surrogate.name, surrogate.family) if isinstance(what, str) else what
    level = LoadLevel(
        surrogate=surrogate.name,
        family=surrogate.family,
        intensity=base.intensity if intensity is None else intensity,
        copies=base.copies if copies is None else copies,
    )
    arguments = ["induce", *suite.arguments, "--dir", str(suite.directory)]
    arguments += ["--intensity", f"{level.intensity:g}", "--copies", str(level.copies)]
    if cpu is not None:
        arguments += ["--cpu", str(allowed_cpu(node, cpu))]
    if seconds is not None:
        if not 0.0 < seconds < float("inf"):
            raise InputError("is out of range.", field="seconds", value=seconds, allowed="above 0")
        arguments += ["--seconds", f"{seconds:g}"]
    return Inducer(
        level,
        [*arguments, surrogate.name],
        cgroup_procs=cgroup_procs,
        ready_timeout_s=ready_timeout_s,
    )


class Mix:
    """Several concurrent loads, which run while the context is open. Created by ``induce_all``."""

    def __init__(self, inducers: Sequence[Inducer]) -> None:
        self.inducers = tuple(inducers)

    def check(self) -> None:
        """Raise InducerError if one of them is no longer running."""
        for inducer in self.inducers:
            inducer.check()

    def __enter__(self) -> Mix:
        try:
            for inducer in self.inducers:
                inducer.start()
        except BaseException:
            # It has stopped itself; those before it run.
            self._abandon()
            raise
        return self

    def __exit__(self, exception: type[BaseException] | None, *_: object) -> None:
        if exception is not None:
            self._abandon()
            return
        try:
            for inducer in reversed(self.inducers):
                inducer.stop(ORDERLY_GRACE_S)
        except BaseException:
            # Ctrl-C while one ends late: the others are not waited for so long either.
            self._abandon()
            raise

    def _abandon(self) -> None:
        """Stop all after an exception, as Ctrl-C is: each ends while the others do, and is killed
        at the same deadline."""
        deadline = time.monotonic() + GRACE_S

        def stop(inducer: Inducer) -> None:
            inducer.stop(max(0.0, deadline - time.monotonic()))

        # Also where one of them raises.
        with ExitStack() as stack:
            for inducer in self.inducers:
                stack.callback(stop, inducer)
            for inducer in self.inducers:
                inducer.terminate()


def induce_all(
    levels: Iterable[LoadLevel],
    *,
    cpu: int | None = None,
    directory: str | Path | None = None,
    seconds: float | None = None,
    cgroup_procs: Sequence[str | Path] = (),
    node: NodeFacts | None = None,
) -> Mix:
    """Create several concurrent loads as one context manager; parameters as ``induce``."""
    node = node_facts() if node is None else node
    return Mix(
        [
            induce(
                level,
                cpu=cpu,
                directory=directory,
                seconds=seconds,
                cgroup_procs=cgroup_procs,
                node=node,
            )
            for level in levels
        ]
    )
