"""Launch rate: the driver launches one task after the other, which limits short tasks."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kongming.spark.model.corrections.correction import Change, Lengths
from kongming.spark.model.workload import Workload

LEAST_BURST = 4
NEGLIGIBLE = 0.01
"""Launches that take this share of a task's length together limit nothing."""


@dataclass(frozen=True, slots=True)
class LaunchRate:
    """``interval_s`` between two launches; ``typical_s``: median length of a task."""

    interval_s: float
    typical_s: float

    name = "launch-rate"

    def apply(self, lengths: Lengths, change: Change) -> Lengths:
        return lengths

    def interval(self, change: Change) -> float:
        """Seconds between two launches, 0 where that makes no difference."""
        round_s = self.interval_s * change.target.slots
        return self.interval_s if round_s > NEGLIGIBLE * self.typical_s else 0.0

    def remarks(self, change: Change) -> list[str]:
        if self.interval_s * change.target.slots > self.typical_s > 0.0:
            rate = 1.0 / self.interval_s
            return [
                f"the driver launches at most {rate:.0f} tasks a second, which limits the slots"
            ]
        return []


def learn_launch_rate(workload: Workload) -> LaunchRate:
    """From the first tasks of stages, for which slots are free."""
    intervals, lengths = [], []
    for stage in workload.stages:
        launched = np.sort(stage.tasks["launch_s"])[: workload.cluster.slots]
        lengths.append(stage.lengths)
        if len(launched) >= LEAST_BURST:
            intervals.append((launched[-1] - launched[0]) / (len(launched) - 1))
    typical = float(np.median(np.concatenate(lengths))) if lengths else 0.0
    # Where slots were not free the interval is longer: the lower half is the driver's own.
    return LaunchRate(float(np.quantile(intervals, 0.25)) if intervals else 0.0, typical)
