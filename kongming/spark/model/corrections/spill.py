"""Spill: a task whose data exceed its share of the execution memory writes the rest to disk.

A task can use the unified memory, less what cached blocks are sure of, divided by the tasks that
run on its executor (UnifiedMemoryManager, ExecutionMemoryPool). What it needs is its peak and the
bytes that it spilled all the same. The seconds that a spilled byte takes are the slope of the
tasks' lengths over their spilled bytes within each stage, with the bytes that they read.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from kongming.arrays import Floats
from kongming.quantities import count as counted
from kongming.quantities import format_bytes
from kongming.spark.application import SUCCEEDED
from kongming.spark.model.cluster import Cluster
from kongming.spark.model.corrections.correction import Change, Lengths
from kongming.spark.model.corrections.memory import Memory
from kongming.spark.model.workload import StageWork, Workload

LEAST_TASKS = 10
"""Tasks that the rate needs, in stages where some spilled more than others."""

LEAST_LEFT = 0.2
"""Share of a task's length that stays when it no longer spills."""


@dataclass(frozen=True, eq=False, slots=True)
class Spill:
    """``second_per_byte`` of spilled data in memory; 0: the log does not show it."""

    workload: Workload
    memory: Memory
    second_per_byte: float
    _latest: dict[Change, list[Floats]] = field(default_factory=dict, init=False, repr=False)

    name = "spill"

    def room(self, cluster: Cluster) -> float:
        """Bytes of execution memory of each of an executor's running tasks."""
        unified = self.memory.unified(cluster)
        cached = self.memory.cached_bytes / max(cluster.executors, 1)
        return (unified - min(cached, self.memory.protected * unified)) / max(cluster.slots_each, 1)

    def apply(self, lengths: Lengths, change: Change) -> Lengths:
        if not self.second_per_byte or self._same(change):
            return lengths
        corrected = []
        for more, own in zip(self._more(change), lengths, strict=True):
            if not more.any():
                corrected.append(own)
                continue
            same_tasks = len(more) == len(own)  # else cut into another number of tasks
            seconds = own + self.second_per_byte * (
                more if same_tasks else more.sum() / max(len(own), 1)
            )
            corrected.append(np.maximum(seconds, np.minimum(own, LEAST_LEFT * own)))
        return corrected

    def cliffs(self, change: Change) -> list[str]:
        """Return a sentence on tasks that spill at the asked size and did not, or less."""
        if self._same(change):
            return []
        more = self._more(change)
        tasks = sum(int((own > 0.0).sum()) for own in more)
        if not tasks:
            return []
        total = sum(float(own[own > 0.0].sum()) for own in more)
        what = (
            f"with {format_bytes(self.room(change.target))} for each task here, "
            f"{counted(tasks, 'task')} would spill {format_bytes(total)} more"
        )
        if not self.second_per_byte:
            return [f"{what}: for how long the log does not tell"]
        return [f"{what}, at {format_bytes(1.0 / self.second_per_byte)} a second as in the log"]

    def remarks(self, change: Change) -> list[str]:
        remarks = self.cliffs(change)
        if self._same(change) or self.second_per_byte:
            return remarks
        if any((own < 0.0).any() for own in self._more(change)):
            remarks.append(
                "tasks spill less here: they may be faster, by how much the log does not tell"
            )
        return remarks

    def _same(self, change: Change) -> bool:
        before, after = self.room(change.recorded), self.room(change.target)
        return not before or abs(after - before) < 1e-9 * before

    def _more(self, change: Change) -> list[Floats]:
        """(n,) bytes of each stage that its tasks spill more at the asked size than as recorded."""
        more = self._latest.get(change)
        if more is None:
            more = [self._of(stage, change) for stage in self.workload.stages]
            # All questions on one size come one after the other.
            self._latest.clear()
            self._latest[change] = more
        return more

    def _of(self, stage: StageWork, change: Change) -> Floats:
        spilled = stage.tasks["memory_spill_bytes"].astype(np.float64)
        needed = stage.tasks["peak_execution_bytes"].astype(np.float64) + spilled
        before, after = self.room(change.recorded), self.room(change.target)
        expected = np.maximum(needed - after, 0.0)
        # A task may have spilled in spite of its room, for what others took: never the other way.
        limit = np.maximum if after < before else np.minimum
        more: Floats = limit(expected, spilled) - spilled
        return more


def learn_spill(workload: Workload, memory: Memory) -> Spill:
    """Learn the rate from stages in which some tasks spilled more than others."""
    y: list[Floats] = []
    spilled: list[Floats] = []
    read: list[Floats] = []
    for stage in workload.stages:
        good = (stage.tasks["status"] == SUCCEEDED) & ~stage.first_of_stage
        own = stage.tasks["memory_spill_bytes"][good].astype(np.float64)
        if len(own) < 3 or np.ptp(own) == 0.0:
            continue
        bytes_read = sum(
            stage.tasks[name][good].astype(np.float64)
            for name in ("input_bytes", "shuffle_local_bytes", "shuffle_remote_bytes")
        )
        for values, into in ((stage.lengths[good], y), (own, spilled), (bytes_read, read)):
            into.append(values - np.mean(values))
    if sum(len(own) for own in y) < LEAST_TASKS:
        return Spill(workload, memory, 0.0)
    A = np.column_stack([np.concatenate(spilled), np.concatenate(read)])
    scale = np.maximum(np.abs(A).max(axis=0), 1.0)
    A, lengths = A / scale, np.concatenate(y)
    if not A[:, 1].any():
        A = A[:, :1]
    M = A.T @ A
    if np.linalg.cond(M) > 1e4:
        return Spill(workload, memory, 0.0)  # who spills more has read more
    slopes = np.linalg.solve(M, A.T @ lengths)
    freedom = max(len(lengths) - len(y) - len(slopes), 1)
    variance = float(np.sum((lengths - A @ slopes) ** 2)) / freedom
    error = float(np.sqrt(variance * np.linalg.inv(M)[0, 0]))
    slope = float(slopes[0])
    # Only what shows beyond chance, but then as it was seen.
    return Spill(workload, memory, slope / float(scale[0]) if slope > 2.0 * error else 0.0)
