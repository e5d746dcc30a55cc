"""Launch rate: the driver launches one task after the other, which limits short tasks."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kongming.arrays import Floats
from kongming.spark.model.corrections.correction import Change, Lengths
from kongming.spark.model.executors import registered_slots
from kongming.spark.model.workload import Workload

LEAST_INTERVALS = 3
"""Intervals that a stage needs to count."""

SPARE = 0.25
"""Share of the slots that is free where the next launch waits for the driver alone. In a busy
cluster a few always are, between a task and the next: there launches follow the tasks' ends."""

EARLY_S = 0.1
"""A slot may be given away so much before a task's finish is recorded."""

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
        """Seconds between two launches, 0 where that makes no difference. Up to the recorded slots
        the tasks' turnover in the log holds it already."""
        if change.target.slots <= change.recorded.slots:
            return 0.0
        round_s = self.interval_s * change.target.slots
        return self.interval_s if round_s > NEGLIGIBLE * self.typical_s else 0.0

    def remarks(self, change: Change) -> list[str]:
        if self.interval(change) * change.target.slots > self.typical_s > 0.0:
            rate = 1.0 / self.interval_s
            return [
                f"the driver launches at most {rate:.0f} tasks a second, which limits the slots"
            ]
        return []


def learn_launch_rate(workload: Workload) -> LaunchRate:
    """Learn from launches that followed another one while slots were free, and no end of a task on
    their executor: an executor may have more slots in the log than it runs tasks."""
    lengths = [stage.lengths for stage in workload.stages]
    typical = float(np.median(np.concatenate(lengths))) if lengths else 0.0
    means = _mean_intervals(workload)
    # Where tasks waited for their data to be near the interval is longer: the lower ones are the
    # driver's own.
    return LaunchRate(float(np.quantile(means, 0.25)) if len(means) else 0.0, typical)


def _mean_intervals(workload: Workload) -> Floats:
    """Mean seconds between launches with free slots, of each stage that shows enough of them."""
    arrays = [stage.tasks for stage in workload.stages if stage.apart is None]
    if not arrays:
        return np.zeros(0)
    owner = np.repeat(np.arange(len(arrays)), [len(tasks) for tasks in arrays])
    launched = np.concatenate([tasks["launch_s"] for tasks in arrays])
    finished = np.concatenate([tasks["finish_s"] for tasks in arrays])
    executor = np.concatenate([tasks["executor"] for tasks in arrays])
    order = np.argsort(launched, kind="stable")
    launched, owner, executor = launched[order], owner[order], executor[order]
    freed = _last_finish(executor, launched + EARLY_S, finished[order])
    finished = np.sort(finished)
    running = np.arange(1, len(launched) + 1) - np.searchsorted(finished, launched, side="right")
    moments, registered = registered_slots(workload.application)
    slots = registered[np.searchsorted(moments, launched, side="right")]
    free = (slots - running >= np.maximum(SPARE * slots, 1.0))[:-1]
    rank = _ranks(owner, len(arrays))
    # A stage's first launch waits for the driver to plan it, and its last for data to be near.
    burst = (rank > 0) & (rank < workload.cluster.slots)
    counted = free & burst[1:] & (freed[1:] <= launched[:-1])
    stages, intervals = owner[1:][counted], np.diff(launched)[counted]
    counts = np.bincount(stages, minlength=len(arrays))
    sums = np.bincount(stages, intervals, minlength=len(arrays))
    enough = counts >= LEAST_INTERVALS
    means: Floats = sums[enough] / counts[enough]
    return means


def _last_finish(executor: np.ndarray, moments: Floats, finished: Floats) -> Floats:
    """(n,) when a task last finished on each task's executor, up to its moment."""
    last = np.full(len(moments), -np.inf)
    for place in np.unique(executor):
        own = executor == place
        ends = np.concatenate([[-np.inf], np.sort(finished[own])])
        last[own] = ends[np.searchsorted(ends, moments[own], side="right") - 1]
    return last


def _ranks(owner: np.ndarray, stages: int) -> np.ndarray:
    """(n,) number of each launch in its stage."""
    order = np.argsort(owner, kind="stable")
    first = np.searchsorted(owner[order], np.arange(stages))
    rank = np.empty(len(owner), dtype=np.intp)
    rank[order] = np.arange(len(owner)) - first[owner[order]]
    return rank
