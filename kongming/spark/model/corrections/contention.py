"""Contention within an executor: tasks that run next to more others take longer.

Learned from tasks of one stage that ran next to more and to fewer others on their executor. The
last tasks of a stage run next to fewer because they are long, which hides contention and never
feigns it; so what is found is a lower bound, and below zero is zero.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kongming.arrays import Floats
from kongming.spark.model.corrections.correction import Change, Lengths
from kongming.spark.model.workload import StageWork, Workload

LEAST_TASKS = 30
"""Tasks that the slope needs."""


@dataclass(frozen=True, slots=True)
class Contention:
    """``slope``: of the log length over the log of the tasks on one executor."""

    slope: float

    name = "contention"

    def apply(self, lengths: Lengths, change: Change) -> Lengths:
        ratio = change.target.slots_each / change.recorded.slots_each
        if ratio == 1.0 or self.slope == 0.0:
            return lengths
        return [own * ratio**self.slope for own in lengths]

    def remarks(self, change: Change) -> list[str]:
        if change.target.slots_each == change.recorded.slots_each:
            return []
        if self.slope == 0.0:
            return ["how tasks on one executor slow each other does not show in the log"]
        return [f"tasks take {2**self.slope:.2f} times as long next to twice as many"]


def learn_contention(workload: Workload) -> Contention:
    logs, lengths = [], []
    for stage in workload.stages:
        rest = ~stage.first_of_stage & (stage.lengths > 0.0)
        if rest.sum() < 8:
            continue
        companions = np.log(_companions(stage)[rest])
        own = np.log(stage.lengths[rest])
        logs.append(companions - companions.mean())
        lengths.append(own - own.mean())
    if not logs:
        return Contention(0.0)
    x, y = np.concatenate(logs), np.concatenate(lengths)
    spread = float(x @ x)
    if len(x) < LEAST_TASKS or spread / len(x) < 0.01:
        return Contention(0.0)
    slope = float(x @ y) / spread
    error = float(np.sqrt(np.sum((y - slope * x) ** 2) / (len(x) - 2) / spread))
    # Only what the log shows beyond chance.
    return Contention(float(np.clip(slope - 2.0 * error, 0.0, 1.0)))


def _companions(stage: StageWork) -> Floats:
    """(n,) mean number of the stage's tasks on a task's executor, itself included, over its start
    and its end."""
    tasks = stage.tasks
    companions = np.ones(len(tasks))
    for executor in np.unique(tasks["executor"]):
        own = tasks["executor"] == executor
        launched, finished = np.sort(tasks["launch_s"][own]), np.sort(tasks["finish_s"][own])
        at = []
        for moments in (tasks["launch_s"][own] + 1e-6, tasks["finish_s"][own] - 1e-6):
            begun = np.searchsorted(launched, moments, side="right")
            at.append(begun - np.searchsorted(finished, moments, side="right"))
        companions[own] = np.maximum((at[0] + at[1]) / 2.0, 1.0)
    return companions
