"""Expected tasks of each stage that are the first of their executor, at any size of the cluster.

Spark gives each executor a task before any gets a second one, in an order that it shuffles each
time (TaskSchedulerImpl.resourceOffers), so that a stage of fewer tasks than executors lands on any
of them. Two kinds of stages stay where others were: those that read a persisted RDD, and those
whose shuffle lies on few executors (MapOutputTracker.getLocationsWithLargestOutputs).
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from kongming.spark.model.cluster import Cluster
from kongming.spark.model.workload import Workload

MOST_LOCATIONS = 5
"""Executors that a task prefers for its shuffle: those with a fifth of its bytes or more."""


def first_of_application(
    workload: Workload, counts: Sequence[int], cluster: Cluster
) -> list[float]:
    """Expected tasks of each stage, of ``counts`` tasks, that are the first of an executor."""
    used = used_executors(workload, counts, cluster)
    new = [after - before for before, after in itertools.pairwise(used)]
    return _tasks(new, counts, cluster)


def first_of_kind(workload: Workload, counts: Sequence[int], cluster: Cluster) -> list[float]:
    """Expected tasks of each stage, of ``counts`` tasks, that are the first of its kind on an
    executor."""
    used = used_executors(workload, counts, cluster)
    present = present_executors(counts, cluster)
    known: dict[str, float] = {}
    new = []
    for number, (stage, count) in enumerate(zip(workload.stages, counts, strict=True)):
        before = known.get(stage.kind, 0.0)
        # Where cached data lies, only the executors that have worked are eligible.
        stays = stage.reads_cached and count <= int(used[number]) * cluster.slots_mean
        eligible = max(used[number], 1.0) if stays else float(present[number])
        working = min(float(count), eligible)
        new.append(working * max(1.0 - before / eligible, 0.0))
        known[stage.kind] = before + new[-1]
    return _tasks(new, counts, cluster)


def present_executors(counts: Sequence[int], cluster: Cluster) -> list[int]:
    """Executors that each stage finds: dynamic allocation asks for no more than the widest stage so
    far had use for."""
    dynamic = cluster.dynamic
    if dynamic is None:
        return [cluster.executors] * len(counts)
    widest = itertools.accumulate(counts, max)
    wanted = [max(-(-count // max(cluster.slots_each, 1)), 1) for count in widest]
    most = min(dynamic.most, cluster.executors)
    return [min(max(count, dynamic.least), most) for count in wanted]


def used_executors(workload: Workload, counts: Sequence[int], cluster: Cluster) -> list[float]:
    """Expected executors that have worked before each stage, and after the last (stages + 1)."""
    hosts = [each.host for each in workload.application.executors]
    apart = len(set(hosts)) == len(hosts)  # a shuffle's location is a host
    used = [0.0]
    present = present_executors(counts, cluster)
    for stage, count, executors in zip(workload.stages, counts, present, strict=True):
        makers = [min(counts[parent], executors) for parent in stage.parents]
        near = apart and makers and max(makers) <= MOST_LOCATIONS
        if stage.reads_cached:
            room = int(used[-1]) * cluster.slots_mean
        else:
            room = max(makers) * cluster.slots_mean if near else 0
        new = min(count, executors) * (1.0 - used[-1] / executors) if count > room else 0.0
        if stage.elsewhere:
            new = 0.0
        used.append(used[-1] + new)
    return used


def _tasks(new: Sequence[float], counts: Sequence[int], cluster: Cluster) -> list[float]:
    """Count the first tasks on new executors: on each those of all of its slots."""
    present = present_executors(counts, cluster)
    return [
        executors_new * max(min(count / max(min(count, executors), 1), cluster.slots_mean), 1.0)
        for executors_new, count, executors in zip(new, counts, present, strict=True)
    ]
