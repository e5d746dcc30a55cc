"""The runs of a profiler, measured, failed or awaited, as policies and models see them: answers
come in any order, which tells nothing."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from kongming.arrays import Floats
from kongming.explore.runs import VALUE, Measured, Run, measured, order_of, rows
from kongming.explore.situation import keys

Codes = tuple[float, ...]


class Outcomes:
    """Runs in the order in which they were told, and the points whose runs are awaited.

    Args:
        width: dimensions of the space.
        metric: which of several metrics of a run guides the choice; by default the first told.
    """

    def __init__(self, width: int, metric: str | None = None) -> None:
        self.runs: list[Run] = []
        self.pending: list[Codes] = []
        self._width = width
        self._metric = metric

    def add(self, run: Run) -> None:
        """Add a run; where its point was awaited, it is so no longer (once)."""
        waiting = [key_of(codes) for codes in self.pending]
        if key_of(run.codes) in waiting:
            del self.pending[waiting.index(key_of(run.codes))]
        self.runs.append(run)

    @property
    def codes(self) -> list[Codes]:
        """The point of each run."""
        return [run.codes for run in self.runs]

    @property
    def known_codes(self) -> list[Codes]:
        """The points of all runs, and those that are awaited."""
        return self.codes + self.pending

    @property
    def points(self) -> int:
        """Count the distinct points of all runs, and those that are awaited."""
        return len(keys(rows(self.known_codes, self._width)))

    @property
    def guide(self) -> str:
        """The metric that guides the choice."""
        if self._metric is not None:
            return self._metric
        metrics = (name for run in self.runs for name in run.values or ())
        # A run that was ended says only what was limited, unless there is nothing else.
        bounds = (name for run in self.runs for name in run.bounds)
        return next(metrics, next(bounds, VALUE))

    @property
    def metrics(self) -> list[str]:
        """Return the metrics that runs measured, and those of which a bound was named."""
        return sorted({name for run in self.runs for name in (*(run.values or ()), *run.bounds)})

    def guiding_value(self, run: Run) -> float | None:
        """Return the guiding metric of a run, or a lower bound of it; None where it has neither."""
        return run.measured(self.guide, guides=True)

    def measured(self, metric: str | None = None, first: int | None = None) -> Measured:
        """Return the runs that measured a metric, by default the guiding one, by point; of the
        ``first`` so many runs where that is given."""
        name = self.guide if metric is None else metric
        known = measured(self.runs[:first], name, self._width, guides=name == self.guide)
        return known.sorted_by_codes()

    def failures(self, metric: str | None = None) -> NDArray[np.bool_]:
        """Mark (n,) the runs that failed, in their order: those that measured nothing, and have no
        lower bound of ``metric``, by default the guiding one. A time limit is none of a rate."""
        guide = self.guide
        name = guide if metric is None else metric
        return np.array([run.failed(name, guides=name == guide) for run in self.runs], dtype=bool)

    def succeeded(self, metric: str | None = None) -> Floats:
        """Return the points (n, d) of the runs that are no ``failures``, each as often as it was
        run: those that measured any metric, and those that were ended after a lower bound."""
        return self._points_of(~self.failures(metric))

    def failed(self, metric: str | None = None) -> Floats:
        """Return the points (n, d) of the ``failures``."""
        return self._points_of(self.failures(metric))

    def awaited(self) -> Floats:
        """Return the points (n, d) whose value is yet to come: runs that measured other metrics
        only are among them, as they are not suggested again either."""
        guide = self.guide
        others = [
            run.codes for run in self.runs if run.values is not None and guide not in run.values
        ]
        return _sorted(rows(self.pending + others, self._width))

    def repeats(self, measured: Floats) -> tuple[int, int]:
        """Return how many runs of the ``measured`` points (n, d) are awaited, and how many runs, of
        all and awaited ones, are of a point that was run or suggested before."""
        seen = keys(measured)
        awaited = sum(key_of(codes) in seen for codes in self.pending)
        return awaited, len(self.known_codes) - self.points

    def failures_by_batch(self, batch: int) -> NDArray[np.bool_]:
        """Return the ``failures`` with, of each ``batch``, whose answers come in any order, the
        failed ones first."""
        failures = self.failures()
        for start in range(0, len(failures), batch):
            part = failures[start : start + batch]
            part[:] = np.sort(part)[::-1]
        return failures

    def errors(self) -> list[str]:
        """Return the reasons of the runs that failed, each once."""
        return sorted({run.error for run in self.runs if run.error})

    def _points_of(self, runs: NDArray[np.bool_]) -> Floats:
        return _sorted(rows(self.codes, self._width)[runs])


def key_of(codes: Codes) -> bytes:
    """Return what is equal for equal points alone."""
    return next(iter(keys(np.array([codes]))))


def _sorted(codes: Floats) -> Floats:
    return np.asarray(codes[order_of(codes)])
