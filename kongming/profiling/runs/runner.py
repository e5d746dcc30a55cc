"""Time an application: ``with open_runner(app, work_dir) as runner: runner.run((0,))``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from kongming.profiling.runs.outcome import Outcome, judge
from kongming.profiling.runs.page_cache import evict
from kongming.profiling.runs.service import ServiceRunner
from kongming.profiling.runs.workspace import AnyRunner
from kongming.records import moments
from kongming.records.application import Application
from kongming.records.errors import ApplicationRunError

__all__ = ["AnyRunner", "Outcome", "Runner", "ServiceRunner", "open_runner"]


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
    ) -> Outcome:
        """Time one run pinned to ``cpus``, after ``prepare``; a failure is in the outcome.

        Raises:
            ProbeError: the micro-benchmark binary is missing or failed.
        """
        started_at = moments.now()
        try:
            self.prepare(cpus)
            warnings: tuple[str, ...] = ()
            if self.app.cache == "cold":
                warnings = (evict(self._entered(), whole_node=self.evict_node),)
            limit = self.app.timeout_s if timeout_s is None else timeout_s
            running = self.execute(
                self.app.command, cpus=cpus, cgroup_procs=cgroup_procs, timeout_s=limit
            )
        except ApplicationRunError as error:
            return Outcome.failed(str(error))
        with running:
            iteration = running.result()
            return judge(
                self.app, iteration, running.output, started_at=started_at, warnings=warnings
            )


def open_runner(app: Application, work_dir: str | Path, *, evict_node: bool = True) -> AnyRunner:
    """Create the runner for the application's kind; entering it runs the set-up.

    With ``evict_node`` False a cold-cache application does not drop the page cache of others.

    Raises:
        ApplicationRunError: on entering, when set-up fails.
    """
    kind: type[AnyRunner] = ServiceRunner if app.kind == "service" else Runner
    return kind(app, work_dir, evict_node=evict_node)
