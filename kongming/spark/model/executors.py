"""Executors of a log, and how many tasks each runs at once."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from kongming.arrays import Floats
from kongming.quantities import count as counted
from kongming.records.errors import CannotAnswerError
from kongming.spark.application import Application, Executor

MOST_CPUS = 1e5
"""CPUs of a task above which the setting is wrong."""


def task_cpus(application: Application) -> float:
    """Return spark.task.cpus; of the default resource profile where there is one.

    Raises:
        CannotAnswerError: it is no number of CPUs.
    """
    for profile in application.resource_profiles:
        if profile.id == 0 and 0.0 < profile.task_cpus <= MOST_CPUS:
            return float(profile.task_cpus)
    text = application.settings.get("spark.task.cpus", "1")
    try:
        cpus = float(text)
    except ValueError:
        cpus = math.nan
    if not cpus <= MOST_CPUS:
        raise CannotAnswerError(
            f"{application.source or application.id}: spark.task.cpus is {text[:40]!r}, which is "
            "no number of CPUs, so that the slots of an executor are not known.",
            hint="Take a log whose settings are as Spark wrote them.",
        )
    return max(cpus, 1.0)


def profile_cpus(application: Application, profile: int) -> float:
    """Return the CPUs of a task of a resource profile; those of the default one if not known."""
    for each in application.resource_profiles:
        if each.id == profile != 0 and 0.0 < each.task_cpus <= MOST_CPUS:
            return float(each.task_cpus)
    return task_cpus(application)


def sized_executors(application: Application) -> list[Executor]:
    """Return the executors, by their places. Where a task needs several CPUs, the cores of those
    that ran more tasks at once than fit into them are as many as these tasks need: of an executor
    that never registered the log has its tasks only."""
    executors = list(application.executors)
    cpus = [profile_cpus(application, each.resource_profile) for each in executors]
    if max(cpus, default=1.0) <= 1.0:
        return executors
    arrays = [stage.tasks for stage in application.stages if len(stage.tasks)]
    owners = np.concatenate([np.zeros(0, int), *(tasks["executor"] for tasks in arrays)])
    order = np.argsort(owners, kind="stable")
    launched, finished = (
        np.concatenate([np.zeros(0), *(tasks[name] for tasks in arrays)])[order]
        for name in ("launch_s", "finish_s")
    )
    places, begins = np.unique(owners[order], return_index=True)
    bounds = itertools.pairwise([*begins.tolist(), len(order)])
    for place, (begin, end) in zip(places.tolist(), bounds, strict=True):
        if place < 0 or cpus[place] <= 1.0:
            continue
        at_once = _usually_at_once(launched[begin:end], finished[begin:end])
        if at_once > slots_of(executors[place], cpus[place]):
            cores = math.ceil(at_once * cpus[place])
            executors[place] = replace(executors[place], cores=cores)
    return executors


def executor_slots(application: Application, sized: Sequence[Executor] | None = None) -> list[int]:
    """Return the slots of each executor, by its place; ``sized``: its ``sized_executors``, where
    they are known."""
    return [
        slots_of(each, profile_cpus(application, each.resource_profile))
        for each in (sized_executors(application) if sized is None else sized)
    ]


def core_remarks(application: Application) -> list[str]:
    """Return sentences on executors whose cores and ``spark.task.cpus`` do not fit together."""
    cpus, sized = task_cpus(application), sized_executors(application)
    grown = sum(a.cores != b.cores for a, b in zip(application.executors, sized, strict=True))
    idle = sum(slots == 0 for slots in executor_slots(application, sized))
    remarks = []
    if grown:
        remarks.append(
            f"{counted(grown, 'executor')} ran more tasks at once than fit into the cores that the "
            f"log has for them, at spark.task.cpus {cpus:g}: the cores are taken from the tasks"
        )
    if idle:
        remarks.append(
            f"{counted(idle, 'executor')} with fewer cores than spark.task.cpus, {cpus:g}, ran "
            "nothing and are left out"
        )
    return remarks


def slots_of(executor: Executor, cpus: float) -> int:
    """Return the tasks that an executor runs at once."""
    return int(executor.cores // cpus)


def other_cores_share(application: Application, cores: int, end_s: float) -> float:
    """Return the share of the slot-seconds of the default resource profile, until ``end_s``, that
    executors of other than these ``cores`` held."""
    held = other = 0.0
    sized = sized_executors(application)
    for each, slots in zip(sized, executor_slots(application, sized), strict=True):
        if each.resource_profile != 0:
            continue
        left = end_s if each.removed_s is None else min(each.removed_s, end_s)
        own = slots * max(left - max(each.added_s, 0.0), 0.0)
        held += own
        other += own if each.cores != cores else 0.0
    return other / held if held > 0.0 else 0.0


def _usually_at_once(launched: Floats, finished: Floats) -> int:
    """The median over time of the tasks at once, while there are any. A slot may be given away
    before a finish is recorded, so that the most at once is too many."""
    moments = np.concatenate([finished, launched])
    order = np.argsort(moments, kind="stable")
    steps = np.repeat([-1, 1], len(launched))[order]
    running, seconds = np.cumsum(steps)[:-1], np.diff(moments[order])
    seconds = np.where(running > 0, seconds, 0.0)
    by_count = np.argsort(running, kind="stable")
    passed = np.cumsum(seconds[by_count])
    if not len(passed) or passed[-1] <= 0.0:
        return 1
    return int(running[by_count][np.searchsorted(passed, 0.5 * passed[-1])])


def registered_slots(application: Application) -> tuple[Floats, Floats]:
    """Return moments (n,) and slots (n + 1,) of the default resource profile: ``slots[k]`` from
    moment k - 1 to moment k. Those of an executor that is excluded are not offered."""
    changes: list[tuple[float, int]] = []
    for each, own in zip(application.executors, executor_slots(application), strict=True):
        if each.resource_profile != 0:
            continue
        ends = [(each.removed_s, -own)] if each.removed_s is not None else []
        changes += [(each.added_s, own), *ends]
        last = np.inf if each.removed_s is None else each.removed_s
        for begin, end in each.excluded_s:
            if begin < last:
                changes += [(begin, -own), (last if end is None else min(end, last), own)]
    changes.sort()
    moments = np.array([time for time, _ in changes])
    return moments, np.cumsum([0.0, *(change for _, change in changes)])


def most_at_once(executors: Sequence[Executor], amounts: Sequence[int]) -> int:
    """The highest sum of the amounts of the executors that are registered at one moment."""
    changes = []
    for each, amount in zip(executors, amounts, strict=True):
        changes.append((each.added_s, amount))
        if each.removed_s is not None:
            changes.append((each.removed_s, -amount))
    # One that goes leaves before one that comes.
    return max(itertools.accumulate(amount for _, amount in sorted(changes)))
