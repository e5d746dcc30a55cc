"""Baselines of every answer: constant lengths (the thesis) and linear scaling."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from kongming.arrays import Floats
from kongming.spark.model.cluster import Cluster
from kongming.spark.model.critical_path import critical_path_s
from kongming.spark.model.driver import between_jobs_s, driver_time, job_end
from kongming.spark.model.groups import Waiting, job_groups, subgroups
from kongming.spark.model.replay import replay
from kongming.spark.model.workload import Workload


class ConstantLengths:
    """The thesis' model (equations 3.1 to 3.3 and 4.1): tasks take as long as they took, groups
    of jobs run one after the other, and so do the subgroups of a group; the driver's time is added.

    The driver's time within jobs, between their stages, is left out, as in the thesis: on many
    slots it lies below the critical path of the replay, and has one of its own.
    """

    def __init__(self, workload: Workload) -> None:
        jobs = [work.job for work in workload.jobs]
        ends = [job_end(job, workload.application) for job in jobs]
        self._groups = job_groups(jobs)
        steps = [part for group in self._groups for part in subgroups(group, jobs, ends)]
        self._workload = _in_steps(workload, steps)
        self._driver_s = driver_time(workload.application).total_s

    def seconds(self, cluster: Cluster, lengths: Sequence[Floats] | None = None) -> float:
        """Return T(App), equation 3.3a."""
        return self._driver_s + replay(self._workload, _plain(cluster), lengths).end_s

    def execution_seconds(self, cluster: Cluster) -> dict[int, float]:
        """Return the seconds of each SQL execution: its subgroups one after the other, and the
        driver's time between its jobs."""
        spans = replay(self._workload, _plain(cluster)).job_spans
        seconds = {}
        for group in self._groups:
            if group.execution is not None:
                own = spans[list(group.jobs)]
                between_s = between_jobs_s(
                    [self._workload.jobs[place].job for place in group.jobs],
                    self._workload.application,
                )
                seconds[group.execution] = float(own[:, 1].max() - own[:, 0].min()) + between_s
        return seconds

    def critical_path_s(self) -> float:
        """Return T(App) on endless slots."""
        return self._driver_s + critical_path_s(self._workload)


class Linear:
    """All but the driver's time falls as the slots grow."""

    def __init__(self, workload: Workload) -> None:
        self._driver_s = driver_time(workload.application).total_s
        self._parallel = (workload.measured_s - self._driver_s) * workload.cluster.slots

    def seconds(self, cluster: Cluster) -> float:
        return self._driver_s + self._parallel / cluster.slots


def _plain(cluster: Cluster) -> Cluster:
    """All executors are there from the start to the end."""
    return replace(cluster, arrivals=(), removals=(), dynamic=None)


def _in_steps(workload: Workload, steps: Sequence[tuple[int, ...]]) -> Workload:
    """Sets of jobs one after the other, each set at once; no gaps at all."""
    waiting = {
        place: Waiting(steps[number - 1] if number else (), 0.0)
        for number, step in enumerate(steps)
        for place in step
    }
    # A parent in a later step would never end: it is not waited for.
    step_of = {place: number for number, step in enumerate(steps) for place in step}
    stages = tuple(
        replace(
            stage,
            lag_s=0.0,
            turnover_s=0.0,
            speculation=None,
            parents=tuple(
                parent
                for parent in stage.parents
                if step_of[workload.stages[parent].job] <= step_of[stage.job]
            ),
        )
        for stage in workload.stages
    )
    jobs = tuple(
        replace(job, waiting=waiting[place], tail_s=0.0) for place, job in enumerate(workload.jobs)
    )
    return replace(workload, jobs=jobs, stages=stages, end_s=0.0, fair=False)
