"""First tasks: an executor loads classes, compiles code and fetches broadcasts once.

Its first task of the application, its first of a kind of stage (the code that its RDDs run), its
first of a stage, and the rest are four populations. With more slots more tasks are first. The
excess of a stage's first tasks is learned within each stage that has both, that of a kind's over
its stages, and each is drawn towards what the others show, by how well it is known (empirical
Bayes).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from kongming.arrays import Floats
from kongming.spark.application import SUCCEEDED
from kongming.spark.model.corrections.correction import Change, Lengths
from kongming.spark.model.corrections.fresh_executors import (
    first_of_application,
    first_of_kind,
    present_executors,
)
from kongming.spark.model.workload import StageWork, Workload

LEAST_LEFT = 0.2
"""Share of a task's length that stays when its excess is taken off."""

LEAST_ALIKE = 2
"""Stages that a stage without other tasks of its own is compared with, at the least."""

TINY = 1e-6
"""Least variance between stages, in square seconds."""


@dataclass(frozen=True, eq=False, slots=True)
class Shares:
    """(n,) each: how far the tasks of a stage are their slots' first, 0 to 1."""

    stage: Floats
    kind: Floats
    application: Floats


@dataclass(frozen=True, eq=False, slots=True)
class FirstTasks:
    """``stage_s`` (stages,): excess seconds of an executor's first tasks of a stage; ``kind_s``
    (stages,): what its first tasks of the stage's kind take on top; ``application_s``: what its
    first tasks of the application take on top of both."""

    workload: Workload
    stage_s: Floats
    kind_s: Floats
    application_s: float

    name = "first-tasks"

    def warm(self, number: int) -> Floats:
        """(n,) lengths of a stage as if none of its tasks were first."""
        stage = self.workload.stages[number]
        excess = self.stage_s[number] * stage.first_of_stage
        excess = excess + self.kind_s[number] * stage.first_of_kind
        excess = excess + self.application_s * stage.first_of_app
        warm: Floats = np.maximum(stage.lengths - excess, LEAST_LEFT * stage.lengths)
        return warm

    def apply(self, lengths: Lengths, change: Change) -> Lengths:
        corrected = []
        targets = self.shares([len(own) for own in lengths], change)
        for number, (stage, own, target) in enumerate(
            zip(self.workload.stages, lengths, targets, strict=True)
        ):
            step = self.excess(number, target)
            if len(own) != len(stage.lengths):
                # The task counts have changed, from warm lengths.
                corrected.append(own + step)
                continue
            masks = stage.first_of_stage, stage.first_of_kind, stage.first_of_app
            step = step - self.excess(number, Shares(*(mask.astype(float) for mask in masks)))
            corrected.append(np.maximum(own + step, LEAST_LEFT * own) if step.any() else own)
        return corrected

    def excess(self, number: int, shares: Shares) -> Floats:
        """(n,) seconds that the tasks of a stage take longer for being first ones."""
        excess: Floats = self.stage_s[number] * shares.stage + self.kind_s[number] * shares.kind
        return excess + self.application_s * shares.application

    def shares(self, counts: Sequence[int], change: Change) -> list[Shares]:
        """Return how far each task of each stage, of ``counts`` tasks, is a first one at a size."""
        stages = self.workload.stages
        recorded = [len(stage.lengths) for stage in stages]
        before = first_of_application(self.workload, recorded, change.recorded)
        after = first_of_application(self.workload, counts, change.target)
        before_kind = first_of_kind(self.workload, recorded, change.recorded)
        after_kind = first_of_kind(self.workload, counts, change.target)
        present = present_executors(counts, change.target)
        shares = []
        for number, (stage, count) in enumerate(zip(stages, counts, strict=True)):
            first = min(count, round(present[number] * change.target.slots_mean))
            if count != recorded[number]:
                none = np.zeros(count, bool)
                moved = (first, after_kind[number], after[number])
                shares.append(Shares(*(_moved(none, more) for more in moved)))
                continue
            changes = (
                (stage.first_of_stage, first - min(count, change.recorded.slots)),
                (stage.first_of_kind, after_kind[number] - before_kind[number]),
                (stage.first_of_app, after[number] - before[number]),
            )
            shares.append(Shares(*(mask + _moved(mask, more) for mask, more in changes)))
        return shares

    def remarks(self, change: Change) -> list[str]:
        return []


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
    stage_s = np.array(
        [
            _shrunk(stage, difference, centre, between)
            for stage, difference in zip(stages, differences, strict=True)
        ]
    )
    usual = _usual(stages, stage_s)
    kind_s = _kind_excess(stages, stage_s, usual)
    application_s = _application_excess(stages, stage_s + kind_s, usual)
    return FirstTasks(workload, stage_s, kind_s, application_s)


def _good(stage: StageWork) -> np.ndarray:
    good: np.ndarray = (stage.tasks["status"] == SUCCEEDED) & ~stage.tasks["speculative"]
    return good


def _difference(stage: StageWork) -> tuple[float, float] | None:
    """Mean excess of the first tasks over the rest and its variance; None without both."""
    good = _good(stage)
    first = stage.lengths[good & stage.first_of_stage & ~stage.first_of_kind]
    rest = stage.lengths[good & ~stage.first_of_stage]
    if len(first) < 2 or len(rest) < 2:
        return None
    spread = float(np.var(np.concatenate([first - first.mean(), rest - rest.mean()])))
    spread *= (len(first) + len(rest)) / (len(first) + len(rest) - 2)
    variance = spread * (1.0 / len(first) + 1.0 / len(rest))
    return float(first.mean() - rest.mean()), max(variance, 1e-8)


def _pooled(known: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """Return what the stages have in common, and the variance between them."""
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


def _usual(stages: Sequence[StageWork], stage_s: Floats) -> list[float]:
    """(stages,) median seconds of a stage's tasks that were no first ones of their kind, less the
    excess of its first ones. Where it has no such tasks, those of the longest stage of its kind
    with as many tasks: the same RDDs may do other amounts of work, and only what is longer than in
    all of those counts as excess. NaN where there are too few to tell."""
    own: list[float] = []
    alike: dict[tuple[str, int], list[float]] = {}
    for stage, excess in zip(stages, stage_s, strict=True):
        other = _good(stage) & ~stage.first_of_kind
        warm = stage.lengths[other] - excess * stage.first_of_stage[other]
        own.append(float(np.median(warm)) if len(warm) else np.nan)
        if len(warm):
            alike.setdefault((stage.kind, len(stage.lengths)), []).append(own[-1])
    longest = {kind: max(each) for kind, each in alike.items() if len(each) >= LEAST_ALIKE}
    return [
        longest.get((stage.kind, len(stage.lengths)), np.nan) if np.isnan(value) else value
        for stage, value in zip(stages, own, strict=True)
    ]


def _kind_excess(stages: Sequence[StageWork], stage_s: Floats, usual: Sequence[float]) -> Floats:
    """(stages,) what the first tasks of a kind take on top of those of a stage. A kind that does
    not show it has that of the others, no longer than its own first tasks took."""
    samples: dict[str, list[Floats]] = {stage.kind: [] for stage in stages}
    most = dict.fromkeys(samples, 0.0)
    for stage, excess, base in zip(stages, stage_s, usual, strict=True):
        longest = float(stage.lengths[stage.first_of_kind].max(initial=0.0))
        most[stage.kind] = max(most[stage.kind], (1.0 - LEAST_LEFT) * longest)
        first = _good(stage) & stage.first_of_kind & ~stage.first_of_app
        if first.any() and np.isfinite(base):
            samples[stage.kind].append(stage.lengths[first] - excess - base)
    by_kind = _of_kinds({kind: np.concatenate(each) for kind, each in samples.items() if each})
    usually = float(np.median(list(by_kind.values()))) if by_kind else 0.0
    return np.array([by_kind.get(stage.kind, min(usually, most[stage.kind])) for stage in stages])


def _of_kinds(samples: Mapping[str, Floats]) -> dict[str, float]:
    """The mean of each kind, drawn to that of all."""
    if not samples:
        return {}
    left = np.concatenate([own - own.mean() for own in samples.values()])
    freedom = max(len(left) - len(samples), 1)
    spread = max(float(np.sum(left**2)) / freedom, TINY)
    known = [(float(own.mean()), spread / len(own)) for own in samples.values()]
    centre, between = _pooled(known)
    return {
        kind: max((value / noise + centre / between) / (1.0 / noise + 1.0 / between), 0.0)
        for kind, (value, noise) in zip(samples, known, strict=True)
    }


def _application_excess(
    stages: Sequence[StageWork], excess: Floats, usual: Sequence[float]
) -> float:
    """The first tasks of executors next to other tasks of their stage or kind; where there are no
    others, their deserialisation next to that of all others."""
    excesses, weights = [], []
    own_parts, other_parts = [], []
    for stage, stage_s, base in zip(stages, excess, usual, strict=True):
        good = _good(stage)
        first = good & stage.first_of_app
        other = good & ~stage.first_of_app
        own_parts.append(stage.tasks["deserialize_s"][first])
        other_parts.append(stage.tasks["deserialize_s"][other])
        if first.any() and np.isfinite(base):
            excesses.append(float(stage.lengths[first].mean() - stage_s - base))
            weights.append(float(first.sum()))
    if excesses:
        return max(float(np.average(excesses, weights=weights)), 0.0)
    own, others = np.concatenate(own_parts), np.concatenate(other_parts)
    if not len(own) or not len(others):
        return 0.0
    return max(float(np.median(own) - np.median(others)), 0.0)
