"""Uncertainty of a replay: run-to-run noise, distance, corrections, and the spread of the tasks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtr, ndtri

from kongming.arrays import Floats
from kongming.spark.model.cluster import Cluster
from kongming.spark.model.replay import replay
from kongming.spark.model.workload import Workload

NOISE = 0.05
"""Standard deviation of the log time of repeats at one size."""

DOUBLING = 0.08
"""Standard deviation that each doubling of the slots, either way, adds."""

CORRECTED = 0.35
"""Standard deviation of a correction, as a share of what it changes (in logs)."""

DRAWS = 8
MOST_TASKS = 5_000
"""Tasks above which their own spread averages out, and is not drawn."""

MOST_SPREAD = 0.3


@dataclass(frozen=True, slots=True)
class Uncertainty:
    """Standard deviations of logs; see the constants."""

    noise: float = NOISE
    doubling: float = DOUBLING
    corrected: float = CORRECTED

    def deviation(self, slots_ratio: float, correction: float, tasks: float) -> float:
        """Return the deviation of the log of a runtime: ``slots_ratio`` asked over recorded,
        ``correction`` the log of corrected over constant, ``tasks`` the tasks' own."""
        distance = self.doubling * abs(np.log2(slots_ratio))
        changed = self.corrected * abs(correction)
        return float(np.sqrt(self.noise**2 + distance**2 + changed**2 + tasks**2))


USUAL = Uncertainty()
"""Of a single log."""


def factor(deviation: float, level: float) -> float:
    """Return the upper end over the median, and the median over the lower end."""
    return float(np.exp(min(float(ndtri(0.5 + level / 2.0)) * deviation, 8.0)))


def probability_within(deviation: float, log_ratio: float) -> float:
    """Return the probability that a runtime over its median is at most exp(``log_ratio``)."""
    return float(ndtr(log_ratio / max(deviation, 1e-9)))


def task_deviation(workload: Workload, cluster: Cluster, lengths: Sequence[Floats]) -> float:
    """Return the deviation of the log of the runtime where each task's length varies as those of
    its stage do. Draws have a fixed seed."""
    if sum(map(len, lengths)) > MOST_TASKS:
        return 0.0
    random = np.random.default_rng(0)
    spreads = [_spread(own) for own in lengths]
    ends = [
        replay(
            workload,
            cluster,
            [
                own * np.exp(spread * random.standard_normal(len(own)))
                for own, spread in zip(lengths, spreads, strict=True)
            ],
        ).end_s
        for _ in range(DRAWS)
    ]
    return float(np.std(np.log(np.maximum(ends, 1e-9))))


def _spread(lengths: Floats) -> float:
    """Half of the spread within a stage: the other half is skew, which stays with its partition."""
    positive = lengths[lengths > 0.0]
    if len(positive) < 4:
        return 0.1
    logs = np.log(positive)
    middle = float(np.median(np.abs(logs - np.median(logs)))) * 1.4826
    return min(0.5 * middle, MOST_SPREAD)
