"""The campaign that runs an application where adaptive profiling wants it to be run."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kongming.explore.fitting import refuse_all_failed, tell

if TYPE_CHECKING:
    from kongming.campaigns.point_runners import PointRunner
    from kongming.explore import DecisionTreeProfiler
    from kongming.explore.runs_table import PointRun, RunsTable


@dataclass
class Exploration:
    """A profiler and the table that its runs are appended to; ``resumed`` is how many runs the
    table had."""

    profiler: DecisionTreeProfiler
    table: RunsTable
    resumed: int = 0
    measured: list[PointRun] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.resumed = len(self.table.runs)
        for run in self.table.runs:
            tell(self.profiler, run)

    def drive(self, runner: PointRunner, observe: Callable[[], object]) -> None:
        """Run what the profiler suggests until its budget is spent; each run is on disk before the
        next one begins in its place. ``observe`` is called after each. What a campaign that was
        interrupted left of a batch comes first, so that it runs what it would have run.

        The next batch is chosen when nothing runs: the choice would slow the program down. What is
        left of a batch is not begun once a budget of costs is spent.

        Raises:
            CannotAnswerError: all runs failed.
        """
        points = [] if self.profiler.is_spent else self.profiler.resume_batch()
        while not self.profiler.is_spent and (points := points or self.profiler.suggest()):
            every = [{name: p.get(name) for name in self.profiler.space.names} for p in points]
            with closing(runner.batch(every, lambda: not self.profiler.is_spent)) as runs:
                for run in runs:
                    self.table.add(run)
                    self.measured.append(run)
                    tell(self.profiler, run)
                    observe()
            points = []
        refuse_all_failed(self.table.runs)
