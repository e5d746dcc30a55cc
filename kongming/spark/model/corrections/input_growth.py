"""Growth with the input: what two samples of different ratio tell of each stage (section 4.3)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from kongming.arrays import Floats
from kongming.quantities import count as counted
from kongming.records.errors import CannotAnswerError, InputError
from kongming.spark.model.corrections.correction import Change, Lengths
from kongming.spark.model.intervals import NOISE
from kongming.spark.model.workload import StageWork, Workload

ITEMS = 1e6
"""Items of all data, for n log n: its growth hardly depends on it."""

CONSTANT, LINEAR = 0.2, 1.05
"""Exponents between the samples: below the first it is constant, above the second n log n."""

FASTER = "faster than n log n"

TASK_NOISE = 0.4
"""Standard deviation of the log of one task's seconds between repeats, from stages of 1 to 17 tasks
(benchmarks/spark/sampled); the tasks of a stage vary independently of each other."""

CLEARLY = 3.0
"""Standard deviations of the growth of a stage between two runs, above that of n log n, from which
on it grew faster."""

STEEPEST = 2.0
"""Exponent beyond the samples at most: of all pairs of rows. What grows faster between two samples
has rather met a limit, such as memory, than followed a power that goes on."""

OF_WEIGHT = 0.01
"""Share of the tasks' seconds above which stages that grow faster are a reason to extrapolate."""


@dataclass(frozen=True, eq=False, slots=True)
class InputGrowth:
    """``factors`` (stages,): of the tasks' seconds from the log's share of the input to the asked
    one; ``cached``: of the cached bytes; ``kinds`` of growth; ``times`` asked over recorded share;
    ``reasons`` why it extrapolates."""

    factors: Floats
    kinds: tuple[str, ...]
    cached: float
    times: float
    reasons: tuple[str, ...] = ()

    name = "input"

    def apply(self, lengths: Lengths, change: Change) -> Lengths:
        return [own * factor for own, factor in zip(lengths, self.factors.tolist(), strict=True)]

    def remarks(self, change: Change) -> list[str]:
        return []


def learn_input_growth(
    log: Workload, ratio: float, other: Workload, other_ratio: float, target_ratio: float
) -> InputGrowth:
    """Learn the growth of each stage from two runs of one program on samples of the same data.

    Raises:
        InputError: the ratios are equal.
        CannotAnswerError: the two runs have different stages, or clusters of different size.
    """
    if ratio == other_ratio:
        raise InputError(
            "Both samples have the same ratio: nothing grows between them.",
            field="--sample",
            value=other_ratio,
        )
    if (log.cluster.executors, log.cluster.slots) != (other.cluster.executors, other.cluster.slots):
        sizes = " and ".join(
            f"{counted(each.executors, 'executor')} with {counted(each.slots, 'slot')}"
            for each in (log.cluster, other.cluster)
        )
        raise CannotAnswerError(
            f"The two samples ran on {sizes}: what grows with the input cannot be separated "
            "from what changes with the cluster.",
            hint="Run both on executors of the same number and size.",
        )
    if len(log.stages) != len(other.stages):
        raise CannotAnswerError(
            f"The two samples' runs have {len(log.stages)} and {len(other.stages)} stages: they "
            "cannot be matched.",
            hint="Run the same program on both, or without adaptive execution.",
        )
    kinds, factors, faster = [], [], []
    for own, its in zip(log.stages, _partners(log, other), strict=True):
        seconds = _seconds(own), _seconds(its)
        kind, factor = _growth(
            seconds[0], ratio, seconds[1], other_ratio, target_ratio, _noise(own, its)
        )
        kinds.append(kind)
        factors.append(factor)
        if kind == FASTER:
            faster.append((seconds[0] * factor, _exponent(*seconds, ratio, other_ratio)))
    times = target_ratio / ratio
    total_s = sum(_seconds(own) * factor for own, factor in zip(log.stages, factors, strict=True))
    beyond = target_ratio > max(ratio, other_ratio)
    of_weight = sum(grown_s for grown_s, _ in faster) > OF_WEIGHT * total_s
    reasons = (_faster(faster),) if beyond and of_weight else ()
    return InputGrowth(np.array(factors), tuple(kinds), times, times, reasons)


def _faster(stages: Sequence[tuple[float, float]]) -> str:
    """Return a sentence on stages of these seconds at the target, and exponents."""
    steepest = max(exponent for _, exponent in stages)
    followed = f", and is extrapolated with {STEEPEST:g}" if steepest > STEEPEST else ""
    which = "it grew" if len(stages) == 1 else "the steepest grew"
    return (
        f"{counted(len(stages), 'stage')} grew faster than n log n between the samples: {which} "
        f"with the input to the power of {steepest:.2g}{followed}"
    )


def _partners(log: Workload, other: Workload) -> list[StageWork]:
    """Return the other run's stage for each of the log's.

    Adaptive execution submits stages of one SQL execution as jobs of their own at the same time,
    and their order differs between runs: among those of one kind, the number of tasks decides,
    where both runs have the same numbers. Elsewhere the order tells more: that of the stages of a
    job is the program's, and tasks may be more or fewer with the input.
    """
    own, its = _alike(log), _alike(other)
    if {key: len(places) for key, places in own.items()} != {
        key: len(places) for key, places in its.items()
    }:
        return list(other.stages)
    partners = list(other.stages)
    for key, places in own.items():
        there = its[key]
        if _jobs_apart(log, places) and _jobs_apart(other, there):
            mine, theirs = _by_tasks(log, places), _by_tasks(other, there)
            if [_tasks(log, at) for at in mine] == [_tasks(other, at) for at in theirs]:
                places, there = mine, theirs
        for place, at in zip(places, there, strict=True):
            partners[place] = other.stages[at]
    return partners


def _alike(work: Workload) -> dict[tuple[str, int, str], list[int]]:
    """Return the places of the stages of each SQL execution, or job outside of one, and kind."""
    groups: dict[tuple[str, int, str], list[int]] = {}
    for place, stage in enumerate(work.stages):
        execution = work.jobs[stage.job].job.execution
        where = ("job", stage.job) if execution is None else ("execution", execution)
        groups.setdefault((*where, stage.kind), []).append(place)
    return groups


def _jobs_apart(work: Workload, places: Sequence[int]) -> bool:
    """Tell whether each of the stages is of a job of its own."""
    return len({work.stages[place].job for place in places}) == len(places)


def _tasks(work: Workload, place: int) -> int:
    return len(work.stages[place].lengths)


def _by_tasks(work: Workload, places: Sequence[int]) -> list[int]:
    """Return the places, those of fewer tasks first."""
    return sorted(places, key=lambda place: _tasks(work, place))


def _seconds(stage: StageWork) -> float:
    return float(stage.lengths.sum())


def _noise(own: StageWork, its: StageWork) -> float:
    """Return the deviation of the log of the growth of a stage between two runs."""
    tasks = 1.0 / max(len(own.lengths), 1) + 1.0 / max(len(its.lengths), 1)
    return math.sqrt(2.0 * NOISE**2 + TASK_NOISE**2 * tasks)


def _growth(
    seconds: float,
    ratio: float,
    other: float,
    other_ratio: float,
    target_ratio: float,
    noise: float,
) -> tuple[str, float]:
    """The kind of growth and its factor from ``ratio`` to ``target_ratio``; ``noise`` is the
    deviation of the log of what has grown between the samples."""
    if seconds <= 0.0 or other <= 0.0:
        return "constant", 1.0
    exponent = _exponent(seconds, other, ratio, other_ratio)
    if exponent < CONSTANT:
        return "constant", 1.0
    if exponent <= LINEAR:
        # What each task costs by itself is the part that stays.
        slope = (other - seconds) / (other_ratio - ratio)
        fixed = max(seconds - slope * ratio, 0.0)
        return "linear", (fixed + (seconds - fixed) * target_ratio / ratio) / seconds
    step = abs(math.log(other / seconds))
    if step > abs(math.log(_nlogn(other_ratio) / _nlogn(ratio))) + CLEARLY * noise:
        # Through both samples, and beyond them as steeply, but for what no power explains.
        inside = min(max(target_ratio, min(ratio, other_ratio)), max(ratio, other_ratio))
        measured = (inside / ratio) ** exponent
        return FASTER, measured * (target_ratio / inside) ** min(exponent, STEEPEST)
    return "n log n", _nlogn(target_ratio) / _nlogn(ratio)


def _exponent(seconds: float, other: float, ratio: float, other_ratio: float) -> float:
    return math.log(other / seconds) / math.log(other_ratio / ratio)


def _nlogn(ratio: float) -> float:
    return ratio * math.log(max(ratio * ITEMS, 2.0))
