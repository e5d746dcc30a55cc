"""Time a service: it is started once and keeps running; each run executes its load once."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import psutil

from kongming.probes import passive
from kongming.profiling.runs.execution import Execution
from kongming.profiling.runs.outcome import Outcome, judge, with_output
from kongming.profiling.runs.workspace import AnyRunner
from kongming.records import moments
from kongming.records.application import Command
from kongming.records.errors import ApplicationRunError

READY_EVERY_S = 0.1
READY_TIMEOUT_S = 10.0
"""Time limit of one ``ready`` attempt; the application's ``timeout_s`` limits them all."""

RESTARTED = "service was restarted"


class ServiceRunner(AnyRunner):
    """Runner of a service: the first run calls ``start``; a service that died is restarted."""

    _service: Execution | None = None
    _cpus: tuple[int, ...] = ()
    _cgroup_procs: tuple[str, ...] = ()
    _restarted = False

    @property
    def load(self) -> Command:
        if self.app.load is None:
            raise ApplicationRunError(f"The service {self.app.name} has no load.")
        return self.app.load

    def load_cpus(self, cpus: Sequence[int], avoid: Sequence[int] = ()) -> tuple[int, ...]:
        """Return the load's CPUs for a service on ``cpus``: ``load_cpu``, unless in ``avoid``."""
        load_cpu = self.app.load_cpu
        return tuple(cpus) if load_cpu is None or load_cpu in avoid else (load_cpu,)

    def start(self, cpus: Sequence[int], cgroup_procs: Sequence[str | Path] = ()) -> None:
        """Ensure that it is running and ready on ``cpus``.

        Raises:
            ApplicationRunError: it ended, or was not ready in time.
        """
        procs = tuple(map(str, cgroup_procs))
        died = self._service is not None and not self._service.running
        if self._service is not None and (died or self._cpus != tuple(cpus)):
            self._stop()
            self._restarted = self._restarted or died
        if self._service is None:
            self._cpus, self._cgroup_procs = tuple(cpus), procs
            self._service = self.execute(self.app.command, cpus=cpus, cgroup_procs=procs)
            try:
                self._await_ready(self._service)
            except BaseException:
                self._stop()
                raise
        elif procs and procs != self._cgroup_procs:
            self._move(self._service, procs)

    def run(
        self,
        cpus: Sequence[int],
        *,
        cgroup_procs: Sequence[str | Path] = (),
        timeout_s: float | None = None,
        neighbour: int | None = None,
    ) -> Outcome:
        """Time one run of the load against the service; a failure is in the outcome.

        ``wall_s`` and ``usage`` are the load driver's.

        Raises:
            ProbeError: the micro-benchmark binary is missing or failed.
        """
        warnings: tuple[str, ...] = ()
        try:
            self.start(cpus, cgroup_procs)
            self.prepare(cpus)
            warnings += self.make_cold()
            limit = self.app.timeout_s if timeout_s is None else timeout_s
            started_at, before = moments.now(), passive.snapshot(neighbour=neighbour)
            driver = self.execute(
                self.load,
                cpus=self.load_cpus(cpus),
                cgroup_procs=cgroup_procs,
                timeout_s=limit,
            )
        except ApplicationRunError as error:
            return Outcome.failed(str(error), warnings=self._note_restart(warnings))
        with driver:
            iteration = driver.result()
            after = passive.snapshot(neighbour=neighbour)
            outcome = judge(
                self.app,
                iteration,
                driver.output,
                started_at=started_at,
                warnings=self._note_restart(warnings),
                any_metric=self.any_metric,
                signals=passive.difference(before, after),
            )
        return self._with_service(outcome)

    def check(self) -> None:
        """Raise ApplicationRunError if the service has ended."""
        if self._service is not None and not self._service.running:
            raise ApplicationRunError(f"The service {self.app.name} {self._end(self._service)}")

    def stop(self) -> None:
        """End the service; the next run starts it again, in that run's groups."""
        self._stop()

    def close(self) -> None:
        self._stop()
        super().close()

    def _note_restart(self, warnings: tuple[str, ...]) -> tuple[str, ...]:
        restarted, self._restarted = self._restarted, False
        return (*warnings, RESTARTED) if restarted else warnings

    def _with_service(self, outcome: Outcome) -> Outcome:
        """Mark a run as failed if the service ended during it, whatever the load's result."""
        try:
            self.check()
        except ApplicationRunError as error:
            return replace(outcome, metric=None, error=str(error), timed_out=False)
        return outcome

    def _await_ready(self, service: Execution) -> None:
        deadline = time.monotonic() + self.app.timeout_s
        while self.app.ready is not None:
            self._alive(service)
            left = deadline - time.monotonic()
            if left <= 0:
                raise ApplicationRunError(
                    f"The service {self.app.name} "
                    + with_output(f"was not ready within {self.app.timeout_s:g} s", service.output)
                )
            with self.execute(
                self.app.ready, cpus=self._cpus, timeout_s=min(left, READY_TIMEOUT_S)
            ) as attempt:
                if attempt.result().ok:
                    break
            service.wait(READY_EVERY_S)
        service.wait(self.app.warmup_s)
        self._alive(service)

    def _alive(self, service: Execution) -> None:
        if not service.running:
            raise ApplicationRunError(f"The service {self.app.name} {self._end(service)}")

    def _end(self, service: Execution) -> str:
        iterations = service.iterations()
        reason = iterations[-1].failure() if iterations else "its supervisor was killed"
        return with_output(f"ended by itself: {reason or 'exit status 0'}", service.output)

    def _move(self, service: Execution, procs: tuple[str, ...]) -> None:
        """Move a running service into other cgroups: a restart would empty its caches."""
        with contextlib.suppress(psutil.Error):
            for supervisor in psutil.Process(service.pid).children():
                for process in supervisor.children(recursive=True):
                    for path in procs:
                        with contextlib.suppress(OSError):
                            Path(path).write_text(f"{process.pid}\n", encoding="ascii")
                    _pin_again(process, self._cpus)
        self._cgroup_procs = procs

    def _stop(self) -> None:
        service, self._service = self._service, None
        if service is not None:
            service.close()


def _pin_again(process: psutil.Process, cpus: Sequence[int]) -> None:
    """Pin the threads of a process that are no longer pinned to ``cpus``: before Linux 6.2, a group
    with CPUs of its own replaces the affinity of what enters it."""
    with contextlib.suppress(psutil.Error):
        for thread in process.threads():
            with contextlib.suppress(OSError):
                if not os.sched_getaffinity(thread.id) <= set(cpus):
                    os.sched_setaffinity(thread.id, cpus)
