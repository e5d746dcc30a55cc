"""Task counts that follow the slots: file splits, default parallelism, AQE's coalescing.

Each rule is used for a stage only if it gives the stage's own count at the recorded size.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from kongming.arrays import Floats
from kongming.quantities import count as counted
from kongming.spark.model.cluster import Cluster
from kongming.spark.model.corrections.correction import Change, Lengths
from kongming.spark.model.corrections.first_tasks import FirstTasks
from kongming.spark.model.workload import StageWork, Workload
from kongming.spark.written_values import size_bytes

MIB = float(1 << 20)

LEAST_PARALLELISM = 2
"""Of a cluster (CoarseGrainedSchedulerBackend.defaultParallelism)."""


@dataclass(frozen=True, eq=False, slots=True)
class TaskCounts:
    """``rules`` (stages): "parallelism", "splits", "coalescing", or None: the count stays.
    ``origins`` (stages): the stage whose partitions a stage has, mostly itself."""

    workload: Workload
    rules: tuple[str | None, ...]
    origins: tuple[int, ...]
    first: FirstTasks | None

    name = "task-counts"

    def apply(self, lengths: Lengths, change: Change) -> Lengths:
        corrected = []
        for number, own in enumerate(lengths):
            count = self.count(number, change)
            if count == len(own):
                corrected.append(own)
            else:
                warm = own if self.first is None else self.first.warm(number)
                corrected.append(recut(self.workload.stages[number], warm, count))
        return corrected

    def count(self, number: int, change: Change) -> int:
        """Tasks of a stage at the asked size."""
        stage, rule = self.workload.stages[number], self.rules[number]
        count = len(stage.lengths)
        before, after = parallelism(change.recorded), parallelism(change.target)
        if change.present is not None:
            cores = change.present[self.origins[number]] * change.target.cores
            after = max(cores, LEAST_PARALLELISM)
        if rule is None or before == after:
            return count
        if rule == "coalescing":
            settings = self.workload.application.settings
            total = _shuffled(stage)
            ratio = coalesced(total, after, settings) / coalesced(total, before, settings)
            return max(round(count * ratio), 1)
        count = max(round(count * after / before), 1)
        if rule == "splits":
            total = float(stage.tasks["input_bytes"].sum())
            smallest = _setting(self.workload, "spark.sql.files.openCostInBytes", 4 * MIB)
            count = min(count, max(len(stage.lengths), math.ceil(total / smallest)))
        return count

    def remarks(self, change: Change) -> list[str]:
        changed = sum(
            self.count(number, change) != len(stage.lengths)
            for number, stage in enumerate(self.workload.stages)
        )
        if not changed:
            return []
        return [f"another number of tasks at this size in {counted(changed, 'stage')}"]


def learn_task_counts(workload: Workload, first: FirstTasks | None) -> TaskCounts:
    rules: list[str | None] = []
    origins: list[int] = []
    executions = {each.id for each in workload.application.executions if each.adaptive}
    for number, stage in enumerate(workload.stages):
        adaptive = workload.jobs[stage.job].job.execution in executions
        rule, origin = _rule(workload, stage, adaptive), number
        if rule is None and stage.parents and not adaptive:
            # A shuffle without a number of its own has as many partitions as its parents.
            above = [
                parent
                for parent in stage.parents
                if rules[parent] == "parallelism"
                and len(workload.stages[parent].lengths) == len(stage.lengths)
            ]
            if above:
                rule, origin = "parallelism", origins[above[0]]
        rules.append(rule)
        origins.append(origin)
    return TaskCounts(workload, tuple(rules), tuple(origins), first)


def parallelism(cluster: Cluster) -> int:
    """spark.default.parallelism where it is not set: all cores, two at the least."""
    return max(cluster.all_cores, LEAST_PARALLELISM)


def coalesced(total_bytes: float, cores: int, settings: dict[str, str]) -> int:
    """Partitions after AQE's coalescing (ShufflePartitionsUtil): none larger than the advised size
    and, by default, as many as there are cores if that leaves them larger than the smallest."""
    advised = _size(settings, "spark.sql.adaptive.advisoryPartitionSizeInBytes", 64 * MIB)
    least = _size(settings, "spark.sql.adaptive.coalescePartitions.minPartitionSize", MIB)
    fewest = 1
    if settings.get("spark.sql.adaptive.coalescePartitions.parallelismFirst", "true") == "true":
        fewest = cores
    number = settings.get("spark.sql.adaptive.coalescePartitions.minPartitionNum", "")
    fewest = int(number) if number.isdigit() and int(number) else fewest
    target = max(min(advised, math.ceil(total_bytes / fewest)), least)
    most = settings.get("spark.sql.shuffle.partitions", "200")
    return max(min(math.ceil(total_bytes / target), int(most) if most.isdigit() else 200), 1)


def recut(stage: StageWork, warm: Floats, count: int) -> Floats:
    """(count,) lengths of the same work cut into ``count`` tasks. What a task costs by itself is
    paid by each; a stage whose tasks were partly empty has nothing left to split."""
    n = len(warm)
    if n == 0:
        return warm
    tasks = stage.tasks
    parts = tasks["scheduler_delay_s"] + tasks["deserialize_s"]
    parts = parts + tasks["serialize_s"] + tasks["getting_result_s"]
    fixed = min(float(np.median(parts)), float(warm.min()))
    read = tasks["input_bytes"] + tasks["shuffle_local_bytes"] + tasks["shuffle_remote_bytes"]
    if count > n and read.max(initial=0.0) > 0 and (read < 0.01 * read.max()).any():
        return np.concatenate([warm, np.full(count - n, float(warm.min()))])
    work = np.concatenate([[0.0], np.cumsum(warm - fixed)])
    edges = np.interp(np.linspace(0.0, n, count + 1), np.arange(n + 1), work)
    cut: Floats = np.diff(edges) + fixed
    return cut


def _rule(workload: Workload, stage: StageWork, adaptive: bool) -> str | None:
    count = len(stage.lengths)
    settings = workload.application.settings
    cores = parallelism(workload.cluster)
    if count != stage.attempt.task_count or stage.needed is not None or stage.barrier:
        return None  # not whole: its count says nothing
    if stage.attempt.attempt > 0:
        return None  # it ran the partitions that were lost
    if adaptive:
        total = _shuffled(stage)
        if total > 0.0:
            expected = coalesced(total, cores, settings)
            return "coalescing" if abs(count - expected) <= max(1.0, 0.25 * count) else None
    if stage.attempt.parents or "spark.default.parallelism" in settings:
        return None
    names = {rdd.name for rdd in stage.attempt.rdds}
    scans = any("FileScan" in name or "Scan " in name for name in names)
    if scans:
        largest = _size(settings, "spark.sql.files.maxPartitionBytes", 128 * MIB)
        read = float(stage.tasks["input_bytes"].sum()) / count
        return "splits" if 0.75 * cores <= count <= 1.5 * cores and read < 0.9 * largest else None
    return "parallelism" if count == cores else None


def _shuffled(stage: StageWork) -> float:
    tasks = stage.tasks
    return float(tasks["shuffle_local_bytes"].sum() + tasks["shuffle_remote_bytes"].sum())


def _size(settings: dict[str, str], key: str, default: float) -> float:
    text = settings.get(key)
    return default if text is None else size_bytes(text, "b") or default


def _setting(workload: Workload, key: str, default: float) -> float:
    return _size(workload.application.settings, key, default)
