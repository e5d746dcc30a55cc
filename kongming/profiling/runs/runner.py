"""Time an application: ``with open_runner(app, work_dir) as runner: runner.run((0,))``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from kongming.probes import passive
from kongming.profiling.runs.execution import Execution
from kongming.profiling.runs.outcome import Outcome, judge
from kongming.profiling.runs.service import ServiceRunner
from kongming.profiling.runs.workspace import AnyRunner
from kongming.records import moments
from kongming.records.application import Application
from kongming.records.errors import ApplicationRunError

__all__ = ["AnyRunner", "BegunRun", "Outcome", "Runner", "ServiceRunner", "open_runner"]


@dataclass(frozen=True, slots=True)
class BegunRun:
    """A run that was started; ``execution`` is to be closed by whoever started it."""

    app: Application
    execution: Execution
    started_at: str
    before: passive.Snapshot
    warnings: tuple[str, ...]
    any_metric: bool = False
    neighbour: int | None = None

    def outcome(self) -> Outcome:
        """Wait for the end and judge the run."""
        iteration = self.execution.result()
        after = passive.snapshot(neighbour=self.neighbour)
        return judge(
            self.app,
            iteration,
            self.execution.output,
            started_at=self.started_at,
            warnings=self.warnings,
            any_metric=self.any_metric,
            signals=passive.difference(self.before, after),
        )


class Runner(AnyRunner):
    """Runner of a batch application: each run is one complete execution of its command.

    Standard output and error go through one pipe into memory: writing a file would disturb the
    measurement. Only the first and the last MiB are kept, and are searched for ``check`` and
    ``metric`` after the run.
    """

    def start(self, cpus: Sequence[int], cgroup_procs: Sequence[str | Path] = ()) -> None:
        """Do nothing: only services are started before they are run."""

    def run(
        self,
        cpus: Sequence[int],
        *,
        cgroup_procs: Sequence[str | Path] = (),
        timeout_s: float | None = None,
        neighbour: int | None = None,
    ) -> Outcome:
        """Time one run pinned to ``cpus``, after ``prepare``; a failure is in the outcome.

        Raises:
            ProbeError: the micro-benchmark binary is missing or failed.
        """
        try:
            begun = self.begin(
                cpus, cgroup_procs=cgroup_procs, timeout_s=timeout_s, neighbour=neighbour
            )
        except ApplicationRunError as error:
            return Outcome.failed(str(error))
        with begun.execution:
            return begun.outcome()

    def begin(
        self,
        cpus: Sequence[int],
        *,
        cgroup_procs: Sequence[str | Path] = (),
        timeout_s: float | None = None,
        neighbour: int | None = None,
    ) -> BegunRun:
        """Start one run pinned to ``cpus``, after ``prepare``, and do not wait for its end.

        Raises:
            ApplicationRunError: ``prepare`` failed, or the working folder does not exist.
            ProbeError: the micro-benchmark binary is missing or failed.
        """
        self.prepare(cpus)
        warnings = self.make_cold()
        limit = self.app.timeout_s if timeout_s is None else timeout_s
        started_at, before = moments.now(), passive.snapshot(neighbour=neighbour)
        execution = self.execute(
            self.app.command, cpus=cpus, cgroup_procs=cgroup_procs, timeout_s=limit
        )
        return BegunRun(
            self.app, execution, started_at, before, warnings, self.any_metric, neighbour
        )


def open_runner(app: Application, work_dir: str | Path, *, evict_node: bool = False) -> AnyRunner:
    """Create the runner for the application's kind; entering it runs the set-up.

    Raises:
        ApplicationRunError: on entering, when set-up fails.
    """
    kind: type[AnyRunner] = ServiceRunner if app.kind == "service" else Runner
    return kind(app, work_dir, evict_node=evict_node)
