"""Sparklens' published algorithm, as a baseline (qubole/sparklens, ``CompletionEstimator``)."""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from kongming.arrays import Floats
from kongming.spark.model.cluster import Cluster
from kongming.spark.model.driver import job_end
from kongming.spark.model.groups import job_groups
from kongming.spark.model.workload import StageWork, Workload


@dataclass(frozen=True, slots=True)
class _Stage:
    """``work``: its place in the workload's stages; ``parents`` are stages by their id."""

    work: int
    parents: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class _List:
    """Stages by their id, and seconds of jobs without any: as long on any number of slots."""

    stages: Mapping[int, _Stage]
    empty_s: float


@dataclass(frozen=True, slots=True)
class _Group:
    """``driver_s``: what of its span its lists do not cover."""

    execution: int | None
    driver_s: float
    lists: tuple[_List, ...]


class Sparklens:
    """Jobs of one SQL execution are a list, which is split where the log shows no overlap. The
    stages of a list are scheduled together, lists one after the other. A task takes its run time
    in milliseconds, without what comes before and after it (the thesis counts launch to finish).
    All time that the lists do not span is the driver's: with overlapping lists it is negative.
    """

    def __init__(self, workload: Workload) -> None:
        self._lengths = [run_seconds(stage) for stage in workload.stages]
        jobs = [work.job for work in workload.jobs]
        ends = [job_end(job, workload.application) for job in jobs]
        starts = [job.submitted_s for job in jobs]
        self._driver_s = workload.measured_s
        self._groups: list[_Group] = []
        for group in job_groups(jobs):
            driver_s = max(ends[at] for at in group.jobs) - min(starts[at] for at in group.jobs)
            lists = []
            for places in _split_in_time(group.jobs, starts, ends):
                span_s = max(ends[at] for at in places) - min(starts[at] for at in places)
                self._driver_s -= span_s
                driver_s -= span_s
                lists.append(_list(workload, places, starts, ends))
            self._groups.append(_Group(group.execution, driver_s, tuple(lists)))

    def seconds(self, cluster: Cluster, lengths: Sequence[Floats] | None = None) -> float:
        """Return the estimate, of tasks of these lengths instead of their run times if given.

        It is 0 where the negative time of the driver exceeds the rest.
        """
        own = self._lengths if lengths is None else lengths
        return max(self._driver_s + sum(self._group_seconds(cluster, own)), 0.0)

    def execution_seconds(self, cluster: Cluster) -> dict[int, float]:
        """Return the estimate of each SQL execution, with the driver's time between its lists."""
        return {
            group.execution: max(group.driver_s + seconds, 0.0)
            for group, seconds in zip(
                self._groups, self._group_seconds(cluster, self._lengths), strict=True
            )
            if group.execution is not None
        }

    def _group_seconds(self, cluster: Cluster, lengths: Sequence[Floats]) -> list[float]:
        milliseconds = [np.maximum(np.rint(1e3 * each), 1.0).tolist() for each in lengths]
        return [
            sum(
                each.empty_s + 1e-3 * _clock(each.stages, milliseconds, cluster.slots)
                for each in group.lists
            )
            for group in self._groups
        ]


def run_seconds(stage: StageWork) -> Floats:
    """Return each task's executor run time: what is left of it in its parts."""
    tasks = stage.tasks
    parts = ("fetch_wait_s", "compute_s", "gc_s", "shuffle_write_s")
    run_s: Floats = np.sum([tasks[part].astype(np.float64) for part in parts], axis=0)
    return run_s


def _list(
    workload: Workload, places: Sequence[int], starts: Sequence[float], ends: Sequence[float]
) -> _List:
    stages: dict[int, _Stage] = {}
    empty_s = 0.0
    for at in places:
        own = workload.jobs[at].stages
        if not own:
            empty_s += ends[at] - starts[at]
        for number in own:  # of several attempts the last
            attempt = workload.stages[number].attempt
            stages[attempt.stage] = _Stage(number, tuple(attempt.parents))
    return _List(stages, empty_s)


def _split_in_time(
    places: Sequence[int], starts: Sequence[float], ends: Sequence[float]
) -> list[list[int]]:
    """Begin a list at each job that starts after the job before it has ended."""
    lists: list[list[int]] = []
    for place in places:
        if not lists or ends[lists[-1][-1]] < starts[place]:
            lists.append([])
        lists[-1].append(place)
    return lists


def _clock(
    stages: Mapping[int, _Stage], milliseconds: Sequence[Sequence[float]], slots: int
) -> float:
    """Return when the last task ends: the stage of the lowest id takes all slots that it can."""
    pending = {key: len(milliseconds[stage.work]) for key, stage in stages.items()}
    waiting = [key for key in sorted(stages) if pending[key]]
    runnable: list[int] = []
    running: list[tuple[float, int]] = []

    def release() -> None:
        ready = [
            key for key in waiting if not any(pending.get(each) for each in stages[key].parents)
        ]
        for key in ready:
            waiting.remove(key)
            heapq.heappush(runnable, key)

    def end_next() -> float:
        end, key = heapq.heappop(running)
        pending[key] -= 1
        if not pending[key]:
            release()
        return end

    clock = 0.0
    release()
    while runnable or running:
        if not runnable:
            clock = end_next()
            continue
        key = heapq.heappop(runnable)
        for length in milliseconds[stages[key].work]:
            if len(running) == slots:
                clock = end_next()
            heapq.heappush(running, (clock + length, key))
    return clock
