"""Application that runs in a loop, as a neighbour of another one."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from kongming.profiling.runs.execution import Execution, Iteration
from kongming.profiling.runs.outcome import why_failed
from kongming.profiling.runs.runner import AnyRunner, ServiceRunner
from kongming.records.application import Command
from kongming.records.errors import ApplicationRunError

WARM_UP_LIMIT_S = 120.0
"""Time limit for a neighbour's first iteration; after it the neighbour counts as warm."""


class Window(NamedTuple):
    """Complete iteration, in nanoseconds of CLOCK_MONOTONIC."""

    start_ns: int
    end_ns: int
    ok: bool


class LoadLoop:
    """Looping application; created by ``loop``. A failing iteration ends the loop."""

    def __init__(
        self,
        runner: AnyRunner,
        cpus: Sequence[int],
        cgroup_procs: Sequence[str | Path],
        load_cpus: Sequence[int],
    ) -> None:
        self._runner = runner
        self._cpus = tuple(load_cpus)
        self._cgroup_procs = tuple(cgroup_procs)
        self._completed: list[Iteration] = []
        self._error: str | None = None
        self._stopping = threading.Event()
        self._changed = threading.Condition()
        self._current: Execution | None = None
        self._thread: threading.Thread | None = None
        app = runner.app
        try:
            runner.start(cpus, cgroup_procs)
            self._command: Command = (
                runner.load if isinstance(runner, ServiceRunner) else app.command
            )
            if app.prepare is None and app.cache == "warm":
                # The supervisor loops by itself, without Python between the iterations.
                self._current = self._start(loop=True)
            else:
                self._thread = threading.Thread(target=self._repeat, daemon=True)
                self._thread.start()
        except ApplicationRunError as error:
            self._error = str(error)

    def iterations(self) -> list[Window]:
        """Return the complete iterations so far, oldest first, without an interrupted one."""
        return [Window(i.start_ns, i.end_ns, i.ok) for i in self._ended() if not i.interrupted]

    def wait_warm(self, limit_s: float | None = None) -> bool:
        """Wait for the end of the first iteration; return False after ``limit_s`` seconds.

        Raises:
            ApplicationRunError: the loop has ended.
        """
        deadline = None if limit_s is None else time.monotonic() + limit_s
        while not self._ended():
            self.check()
            left = 0.2 if deadline is None else min(0.2, deadline - time.monotonic())
            if left <= 0:
                return False
            if self._thread is None and self._current is not None:
                self._current.wait(left, iterations=1)
            else:
                with self._changed:
                    self._changed.wait(left)
        self.check()
        return True

    def wait_phase(self, phase: float) -> float | None:
        """Wait until the loop is warm, then for a share ``phase`` (0 to 1) of an iteration; return
        the seconds of an iteration, None if the first one takes longer than ``WARM_UP_LIMIT_S``.

        Raises:
            ApplicationRunError: the loop has ended.
        """
        self.wait_warm(WARM_UP_LIMIT_S)
        iterations = self.iterations()
        if not iterations:
            return None
        start, end, _ = iterations[-1]
        seconds = (end - start) / 1e9
        time.sleep(phase * min(seconds, WARM_UP_LIMIT_S))
        return seconds

    def check(self) -> None:
        """Raise ApplicationRunError when the loop has ended or an iteration failed."""
        if self._error is None and self._thread is None and self._current is not None:
            failed = [i for i in self._current.iterations() if not i.ok and not i.interrupted]
            if failed or not self._current.running:
                self._error = self._describe(failed[-1] if failed else None, self._current)
        if self._error is not None:
            raise ApplicationRunError(self._error)
        if isinstance(self._runner, ServiceRunner):
            self._runner.check()

    def close(self) -> None:
        """End the loop; return when no process of it is left (a service keeps running)."""
        self._stopping.set()
        while True:
            with self._changed:
                current = self._current
            if current is not None:
                current.close()
            if self._thread is None or not self._thread.is_alive():
                return
            # The loop may be running, or just starting, a ``prepare``.
            self._runner.interrupt()
            self._thread.join(0.02)

    def _ended(self) -> list[Iteration]:
        if self._thread is None:
            return [] if self._current is None else self._current.iterations()
        with self._changed:
            return list(self._completed)

    def _start(self, *, loop: bool) -> Execution:
        return self._runner.execute(
            self._command,
            cpus=self._cpus,
            cgroup_procs=self._cgroup_procs,
            timeout_s=self._runner.app.timeout_s,
            loop=loop,
        )

    def _describe(self, iteration: Iteration | None, execution: Execution) -> str:
        app = self._runner.app
        reason = None
        if iteration is not None:
            reason = why_failed(iteration, execution.output, app.timeout_s)
        return f"{app.name} failed while it looped: {reason or 'its supervisor ended.'}"

    def _repeat(self) -> None:
        """Loop in Python, for applications with untimed work before each iteration."""
        app = self._runner.app
        first = True
        try:
            while not self._stopping.is_set() and self._error is None:
                self._runner.prepare(self._cpus)
                if app.cache == "cold" and self._runner.scratch is not None:
                    # From the second on only files that are its own: the measured application may
                    # use the others too, and would have them evicted while it runs.
                    self._runner.evict(named=first)
                first = False
                with self._changed:
                    if self._stopping.is_set():
                        return
                    self._current = self._start(loop=False)
                with self._current as running:
                    iteration = running.result()
                with self._changed:
                    self._completed.append(iteration)
                    if not iteration.ok and not iteration.interrupted:
                        self._error = self._describe(iteration, running)
                    self._changed.notify_all()
        except Exception as error:
            # Whatever it was: a loop that has ended must not pass for a load.
            if not self._stopping.is_set():
                with self._changed:
                    self._error = str(error) or repr(error)
                    self._changed.notify_all()


@contextmanager
def loop(
    runner: AnyRunner,
    cpus: Sequence[int],
    cgroup_procs: Sequence[str | Path] = (),
    *,
    avoid: Sequence[int] = (),
) -> Iterator[LoadLoop]:
    """Loop the application of ``runner`` on ``cpus`` until the context is left.

    Does not wait: ``wait_warm`` does. A failure to start is raised by ``wait_warm`` and
    ``check``. A service is started and its load loops; the load's own CPU is not used where it is
    in ``avoid`` (the CPUs of the measured application).
    """
    load_cpus = runner.load_cpus(cpus, avoid) if isinstance(runner, ServiceRunner) else cpus
    running = LoadLoop(runner, cpus, cgroup_procs, load_cpus)
    try:
        yield running
    finally:
        running.close()
