"""First tasks: an executor loads classes, generates code and fetches broadcasts once.

Its first task of the application, its first of a stage, and the rest are three populations. With
more slots more tasks are first. The excess of the first is learned within each stage that has both,
and drawn towards what the other stages show, by how well it is known (empirical Bayes).
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from kongming.arrays import Floats
from kongming.spark.application import SUCCEEDED
from kongming.spark.model.cluster import Cluster
from kongming.spark.model.corrections.correction import Change, Lengths
from kongming.spark.model.workload import StageWork, Workload

LEAST_LEFT = 0.2
"""Share of a task's length that stays when its excess is taken off."""

MOST_LOCATIONS = 5
"""Executors that a task prefers for its shuffle: those with a fifth of its bytes or more."""

TINY = 1e-6
"""Least variance between stages, in square seconds."""


@dataclass(frozen=True, eq=False, slots=True)
class FirstTasks:
    """``stage_s`` (stages,): excess seconds of an executor's first tasks of a stage;
    ``application_s``: what its first tasks of the application take on top."""

    workload: Workload
    stage_s: Floats
    application_s: float

    name = "first-tasks"

    def warm(self, number: int) -> Floats:
        """(n,) lengths of a stage as if none of its tasks were first."""
        stage = self.workload.stages[number]
        excess = self.stage_s[number] * stage.first_of_stage
        excess = excess + self.application_s * stage.first_of_app
        warm: Floats = np.maximum(stage.lengths - excess, LEAST_LEFT * stage.lengths)
        return warm

    def apply(self, lengths: Lengths, change: Change) -> Lengths:
        counts = [len(stage.lengths) for stage in self.workload.stages]
        before = first_of_application(self.workload, counts, change.recorded)
        after = first_of_application(self.workload, [len(own) for own in lengths], change.asked)
        present = present_executors([len(own) for own in lengths], change.asked)
        corrected = []
        for number, (stage, own) in enumerate(zip(self.workload.stages, lengths, strict=True)):
            first = min(len(own), present[number] * change.asked.slots_each)
            if len(own) != counts[number]:
                # The task counts have changed, from warm lengths.
                added = np.zeros(len(own))
                added[:first] = self.stage_s[number]
                added += self.application_s * _moved(np.zeros(len(own), bool), after[number])
                corrected.append(own + added)
                continue
            more = first - min(counts[number], change.recorded.slots)
            step = self.stage_s[number] * _moved(stage.first_of_stage, more)
            newer = after[number] - before[number]
            step = step + self.application_s * _moved(stage.first_of_app, newer)
            corrected.append(np.maximum(own + step, LEAST_LEFT * own) if step.any() else own)
        return corrected

    def remarks(self, change: Change) -> list[str]:
        return []


def first_of_application(
    workload: Workload, counts: Sequence[int], cluster: Cluster
) -> list[float]:
    """Expected tasks of each stage, of ``counts`` tasks, that are the first of an executor."""
    used = used_executors(workload, counts, cluster)
    present = present_executors(counts, cluster)
    # On a new executor, the tasks of all of its slots are first.
    return [
        (used[at + 1] - used[at])
        * max(min(count / max(min(count, executors), 1), cluster.slots_each), 1.0)
        for at, (count, executors) in enumerate(zip(counts, present, strict=True))
    ]


def present_executors(counts: Sequence[int], cluster: Cluster) -> list[int]:
    """Executors that each stage finds: dynamic allocation asks for no more than the widest stage so
    far had use for."""
    dynamic = cluster.dynamic
    if dynamic is None:
        return [cluster.executors] * len(counts)
    widest = itertools.accumulate(counts, max)
    wanted = [max(-(-count // max(cluster.slots_each, 1)), 1) for count in widest]
    return [min(max(count, dynamic.least), dynamic.most) for count in wanted]


def used_executors(workload: Workload, counts: Sequence[int], cluster: Cluster) -> list[float]:
    """Expected executors that have worked before each stage, and after the last (stages + 1).

    Spark gives each executor a task before any gets a second one, in an order that it shuffles each
    time (TaskSchedulerImpl.resourceOffers), so that a stage of fewer tasks than executors lands on
    any of them. Two kinds of stages stay where others were: those that read a persisted RDD, and
    those whose shuffle lies on few executors (MapOutputTracker.getLocationsWithLargestOutputs).
    """
    hosts = [each.host for each in workload.application.executors]
    apart = len(set(hosts)) == len(hosts)  # a shuffle's location is a host
    persisted: set[int] = set()
    used = [0.0]
    present = present_executors(counts, cluster)
    for stage, count, executors in zip(workload.stages, counts, present, strict=True):
        cached = {rdd.id for rdd in stage.attempt.rdds if rdd.persisted or rdd.cached_partitions}
        makers = [min(counts[parent], executors) for parent in stage.parents]
        near = apart and makers and max(makers) <= MOST_LOCATIONS
        if cached & persisted:
            room = int(used[-1]) * cluster.slots_each
        else:
            room = max(makers) * cluster.slots_each if near else 0
        new = min(count, executors) * (1.0 - used[-1] / executors) if count > room else 0.0
        persisted |= cached
        used.append(used[-1] + new)
    return used


def _moved(recorded: np.ndarray, more: float) -> Floats:
    """(n,) how much more each task is a first one than as recorded, in order of launch: ``more`` in
    all, at most 1 each, and less than 0 for those that are no longer."""
    moved = np.zeros(len(recorded))
    places = np.flatnonzero(~recorded) if more > 0.0 else np.flatnonzero(recorded)[::-1]
    amounts = np.clip(abs(more) - np.arange(len(places)), 0.0, 1.0)
    moved[places] = amounts if more > 0.0 else -amounts
    return moved


def learn_first_tasks(workload: Workload) -> FirstTasks:
    stages = workload.stages
    differences = [_difference(stage) for stage in stages]
    known = [each for each in differences if each is not None]
    centre, between = _pooled(known)
    excess = np.array(
        [
            _shrunk(stage, difference, centre, between)
            for stage, difference in zip(stages, differences, strict=True)
        ]
    )
    return FirstTasks(workload, excess, _application_excess(stages, excess))


def _good(stage: StageWork) -> np.ndarray:
    good: np.ndarray = (stage.tasks["status"] == SUCCEEDED) & ~stage.tasks["speculative"]
    return good


def _difference(stage: StageWork) -> tuple[float, float] | None:
    """Mean excess of the first tasks over the rest and its variance; None without both."""
    good = _good(stage)
    first = stage.lengths[good & stage.first_of_stage & ~stage.first_of_app]
    rest = stage.lengths[good & ~stage.first_of_stage]
    if len(first) < 2 or len(rest) < 2:
        return None
    spread = float(np.var(np.concatenate([first - first.mean(), rest - rest.mean()])))
    spread *= (len(first) + len(rest)) / (len(first) + len(rest) - 2)
    variance = spread * (1.0 / len(first) + 1.0 / len(rest))
    return float(first.mean() - rest.mean()), max(variance, 1e-8)


def _pooled(known: list[tuple[float, float]]) -> tuple[float, float]:
    """What the stages have in common, and the variance between them."""
    if not known:
        return 0.0, TINY
    values = np.array([value for value, _ in known])
    noise = np.array([variance for _, variance in known])
    weights = 1.0 / (noise + np.median(noise))
    centre = float(np.average(values, weights=weights))
    error = float(np.sqrt(np.sum(weights**2 * noise)) / weights.sum())
    # What chance alone would show is none: one standard error is taken off.
    centre = max(centre - error, 0.0)
    between = float(np.median(np.abs(values - np.median(values))) * 1.4826) ** 2
    return centre, max(between - float(np.median(noise)), (0.25 * centre) ** 2, TINY)


def _shrunk(
    stage: StageWork, difference: tuple[float, float] | None, centre: float, between: float
) -> float:
    if not len(stage.lengths):
        return 0.0
    if difference is None:
        # Its tasks were all first: part of the excess is seen, the rest is as elsewhere.
        value = min(centre, 0.5 * float(np.median(stage.lengths)))
    else:
        value, noise = difference
        value = (value / noise + centre / between) / (1.0 / noise + 1.0 / between)
    first = stage.lengths[stage.first_of_stage]
    most = (1.0 - LEAST_LEFT) * float(np.median(first if len(first) else stage.lengths))
    return float(np.clip(value, 0.0, most))


def _application_excess(stages: tuple[StageWork, ...], excess: Floats) -> float:
    """The first tasks of executors next to other tasks of their stage; where a stage has no others,
    their deserialisation next to that of all others."""
    found, weights = [], []
    own_parts, other_parts = [], []
    for stage, stage_s in zip(stages, excess, strict=True):
        good = _good(stage)
        first = good & stage.first_of_app
        other = good & ~stage.first_of_app
        own_parts.append(stage.tasks["deserialize_s"][first])
        other_parts.append(stage.tasks["deserialize_s"][other])
        if first.any() and other.any():
            warm = stage.lengths[other] - stage_s * stage.first_of_stage[other]
            found.append(float(stage.lengths[first].mean() - stage_s - np.median(warm)))
            weights.append(float(first.sum()))
    if found:
        return max(float(np.average(found, weights=weights)), 0.0)
    own, others = np.concatenate(own_parts), np.concatenate(other_parts)
    if not len(own) or not len(others):
        return 0.0
    return max(float(np.median(own) - np.median(others)), 0.0)
