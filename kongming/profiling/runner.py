"""Times one application: ``with open_runner(app, work_dir) as runner: runner.run((0,))``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from kongming.application import Application
from kongming.errors import ApplicationRunError
from kongming.profiling.outcome import Outcome, judge, utc_now
from kongming.profiling.page_cache import evict
from kongming.profiling.service import ServiceRunner
from kongming.profiling.workspace import AnyRunner

__all__ = ["AnyRunner", "Outcome", "Runner", "ServiceRunner", "open_runner"]


class Runner(AnyRunner):
    """A batch application: each run is one execution of its command, from start to end.

    Standard output and error go through one pipe into memory: no file is written, which would
    disturb what is measured, and of gigabytes only the first and the last MiB are kept; ``check``
    and ``metric`` are searched there after the run.
    """

    def start(self, cpus: Sequence[int], cgroup_procs: Sequence[str | Path] = ()) -> None:
        """Nothing: only services are started before they are run."""

    def run(
        self,
        cpus: Sequence[int],
        *,
        cgroup_procs: Sequence[str | Path] = (),
        timeout_s: float | None = None,
    ) -> Outcome:
        """One timed run pinned to ``cpus``, after ``prepare``; a failure is in the outcome.

        Raises:
            ProbeError: the micro-benchmark binary is missing or failed.
        """
        started_at = utc_now()
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
    """The runner for the application's kind; entering it makes the scratch folder and sets up.

    ``evict_node`` False keeps a cold-cache application from dropping the page cache of others.

    Raises:
        ApplicationRunError: on entering, when set-up fails.
    """
    kind: type[AnyRunner] = ServiceRunner if app.kind == "service" else Runner
    return kind(app, work_dir, evict_node=evict_node)
