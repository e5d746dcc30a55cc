"""Speculative copies of tasks: when they are due.

Spark launches a copy of a task once a quantile of its stage has succeeded and the task has run for
a multiple of the median of those that have (TaskSetManager), and after all tasks of the stage that
wait for a slot. More slots change when the quantile is reached, but not what a task has to run.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from kongming.spark.application import SUCCEEDED, Application, StageAttempt

SLACK_S = 0.5
"""Seconds within which a copy was launched at its moment: Spark looks for tasks to copy every
``spark.speculation.interval``, a tenth of a second."""


@dataclass(frozen=True, slots=True)
class Copy:
    """A copy: its place in the stage, that of its original among the tasks that are no copies, and
    the seconds that the original runs before."""

    place: int
    original: int
    after_s: float


@dataclass(frozen=True, slots=True)
class Speculation:
    """The copies of a stage, which are due once ``quorum`` other tasks have succeeded."""

    copies: tuple[Copy, ...]
    quorum: int

    @property
    def places(self) -> list[int]:
        return [copy.place for copy in self.copies]

    def due_s(self, starts: Sequence[float], ends: Sequence[float]) -> list[float]:
        """Return when each copy is due: ``starts`` of the tasks that are no copies, ``ends`` of
        those that succeed."""
        reached = sorted(ends)[: self.quorum][-1] if ends else 0.0
        return [max(starts[copy.original] + copy.after_s, reached) for copy in self.copies]


def speculation_of(application: Application, attempt: StageAttempt) -> Speculation | None:
    """Return the copies whose originals are in the log, None without any."""
    tasks = attempt.tasks
    if not tasks["speculative"].any():
        return None
    quantile, multiplier = _settings(application)
    good = (tasks["status"] == SUCCEEDED) & ~tasks["speculative"]
    quorum = max(math.floor(quantile * len(np.unique(tasks["partition"]))), 1)
    launch, finish = tasks["launch_s"], tasks["finish_s"]
    reached = float(np.sort(finish[good])[:quorum][-1]) if good.any() else 0.0
    median = float(np.median((finish - launch)[good])) if good.any() else math.inf
    speculative = np.flatnonzero(tasks["speculative"])
    first: dict[int, list[int]] = {}
    for place in np.flatnonzero(
        ~tasks["speculative"] & np.isin(tasks["partition"], tasks["partition"][speculative])
    ).tolist():
        first.setdefault(int(tasks["partition"][place]), []).append(place)
    pairs = []
    for place in speculative.tolist():
        before = [
            other
            for other in first.get(int(tasks["partition"][place]), ())
            if launch[other] <= launch[place]
        ]
        if not before:
            continue
        original = max(before, key=launch.__getitem__)
        after, ran = float(launch[place] - launch[original]), multiplier * median
        expected = max(float(launch[original]) + ran, reached)
        # Later than by these rules, in a slot that had been free: other rules were at work.
        if launch[place] <= expected + SLACK_S or _just_freed(tasks, place):
            after = min(after, ran)
        pairs.append((place, original, after))
    copied = {place for place, _, _ in pairs}
    others = [place for place in range(len(tasks)) if place not in copied]
    at = {place: number for number, place in enumerate(others)}
    copies = [Copy(place, at[original], after) for place, original, after in pairs]
    return Speculation(tuple(copies), quorum) if copies else None


def _just_freed(tasks: np.ndarray, place: int) -> bool:
    """Return whether a slot of the task's executor had become free right before its launch."""
    moment = tasks["launch_s"][place]
    ends = tasks["finish_s"][tasks["executor"] == tasks["executor"][place]]
    return bool(((ends <= moment) & (ends > moment - SLACK_S)).any())


def _settings(application: Application) -> tuple[float, float]:
    """The quantile and the multiple of the median; Spark 4 has others by default."""
    later = application.spark_version.partition(".")[0] not in ("1", "2", "3")
    values = []
    for name, default in (
        ("quantile", 0.9 if later else 0.75),
        ("multiplier", 3.0 if later else 1.5),
    ):
        try:
            value = float(application.settings.get(f"spark.speculation.{name}", ""))
        except ValueError:
            value = default
        values.append(value if math.isfinite(value) and value > 0.0 else default)
    return min(values[0], 1.0), values[1]
