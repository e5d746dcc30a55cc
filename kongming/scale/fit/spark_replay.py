"""A Spark application's replay as a scale model: seconds over executors, and how it is slowed.

The seconds are a table of what ``kongming spark estimate`` found. On loaded nodes the tasks are
replayed again on executors of different speed: free slots take more tasks, so that a slow node
costs less than where all wait for the slowest.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from kongming.arrays import Floats
from kongming.quantities import count as counted
from kongming.records.errors import CannotAnswerError
from kongming.scale.points import Points

RESIDUAL_PRIOR = 0.25, 0.5
"""Weight, in runs, of the prior on the level and on the slope of the log of measured over replayed:
a run says four times as much of the level, and twice as much of the slope if a doubling away."""

MOST_TASKS = 512
"""Tasks kept of a stage: more are thinned, each standing for several."""

MOST_COPIES = 8
"""Tasks that a kept one stands for in a replay; beyond that they are longer instead."""


@dataclass(frozen=True, eq=False, slots=True)
class Step:
    """One stage: ``lengths`` of its tasks in seconds, each of which stands for ``weight``."""

    lengths: Floats
    weight: float


@dataclass(frozen=True, eq=False, slots=True)
class ReplayFit:
    """``executors`` (k,) ascending with their ``seconds`` and log ``deviations``; ``driver_s`` does
    not change with them; ``slots`` of an executor; ``steps`` are the stages. ``reasons`` (k,): why
    the estimate of each size extrapolates; files without any have none."""

    executors: Floats
    seconds: Floats
    deviations: Floats
    driver_s: float
    slots: int
    steps: tuple[Step, ...]
    reasons: tuple[tuple[str, ...], ...] = ()

    kind = "spark-replay"

    def predict(self, points: Points) -> Floats:
        """(n,) seconds, between the table's sizes by powers of the executors. On fewer than the
        least of them, all but the driver takes as much longer as there are fewer; on more than the
        most, nothing is taken to gain by them.

        Raises:
            CannotAnswerError: another scale than 1, of which one run says nothing.
        """
        if (points.scale != 1.0).any():
            raise CannotAnswerError(
                "A replay of one run knows its own input only (scale 1).",
                hint="Record the run on that input, or give two samples to "
                "'kongming spark estimate --input-scale'.",
            )
        inside = np.exp(self._between(points, np.log(self.seconds)))
        fewer = np.maximum(self.executors[0] / points.machines, 1.0)
        driver_s = min(self.driver_s, float(self.seconds[0]))
        return np.asarray(driver_s + (inside - driver_s) * fewer)

    def deviation(self, points: Points) -> Floats:
        """(n,) standard deviation of the log of the time."""
        return self._between(points, self.deviations)

    def reasons_at(self, executors: float) -> tuple[str, ...]:
        """Return why a prediction extrapolates: the reasons of its size in the table, or of the
        sizes next to it, named where they are of one alone."""
        if not self.reasons:
            return ()
        above = min(int(np.searchsorted(self.executors, executors)), len(self.executors) - 1)
        if executors >= self.executors[above]:
            return self.reasons[above]
        near = [max(above - 1, 0), above]
        common = [each for each in self.reasons[near[0]] if each in self.reasons[near[1]]]
        single = [
            f"{counted(int(self.executors[place]), 'executor')}: {each}"
            for place in dict.fromkeys(near)
            for each in self.reasons[place]
            if each not in common
        ]
        return (*common, *single)

    def _between(self, points: Points, values: Floats) -> Floats:
        interpolated = np.interp(np.log(points.machines), np.log(self.executors), values)
        return np.asarray(interpolated, dtype=np.float64)

    def serial_share(self, seconds: float) -> float:
        """Share of the driver in a runtime."""
        return min(self.driver_s / seconds, 1.0)

    def evenness(self, slowdowns: Sequence[float]) -> float:
        """Return where the slowed tasks' time lies between even sharing (0: the harmonic mean of
        the slowdowns, each node takes what it can) and waiting for the slowest (1), by replay."""
        fastest, slowest = min(slowdowns), max(slowdowns)
        even = shared(np.array(slowdowns))
        if slowest <= even * (1.0 + 1e-9):
            return 1.0
        idle = self._replayed([1.0] * len(slowdowns))
        if idle <= 0.0:
            return 1.0
        times = max(self._replayed(slowdowns) / idle, fastest)
        return float(np.clip((times - even) / (slowest - even), 0.0, 1.0))

    def _replayed(self, slowdowns: Sequence[float]) -> float:
        """Seconds of all stages, one after the other, on executors with these slowdowns."""
        total = 0.0
        for step in self.steps:
            copies = int(np.clip(round(step.weight), 1, MOST_COPIES))
            tasks = np.repeat(step.lengths * (step.weight / copies), copies).tolist()
            # In the order of the nodes, which is a heap: all are free.
            heap = [(0.0, k % len(slowdowns)) for k in range(self.slots * len(slowdowns))]
            heap.sort()
            end = 0.0
            for length in tasks:
                start, node = heap[0]
                finish = start + length * slowdowns[node]
                heapq.heapreplace(heap, (finish, node))
                end = max(end, finish)
            total += end
        return total

    def document(self) -> dict[str, Any]:
        return {
            "executors": self.executors.tolist(),
            "seconds": self.seconds.tolist(),
            "deviations": self.deviations.tolist(),
            "driver_s": self.driver_s,
            "slots": self.slots,
            "steps": [
                {"lengths": step.lengths.tolist(), "weight": step.weight} for step in self.steps
            ],
            "reasons": [[*own] for own in self.reasons],
        }


def shared(slowdowns: Floats) -> float:
    """Slowdown where work is shared freely: the harmonic mean."""
    return float(len(slowdowns) / np.sum(1.0 / slowdowns))


def step_of(lengths: Floats) -> Step:
    """Keep at most ``MOST_TASKS`` tasks, evenly spread over the stage."""
    count = len(lengths)
    if count <= MOST_TASKS:
        return Step(np.asarray(lengths, dtype=np.float64), 1.0)
    selected = np.linspace(0, count - 1, MOST_TASKS).round().astype(np.intp)
    return Step(np.asarray(lengths[selected], dtype=np.float64), count / MOST_TASKS)
