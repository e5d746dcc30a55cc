"""Warm-up: code that an executor has run often is compiled, and runs faster.

With fewer executors each has run more of the application by the time a stage comes, with more of
them less. Learned as the slope of the tasks' log lengths over the log of the age of their executor,
which is the seconds that each of its slots has worked: between stages of the same RDDs, and among
the tasks of one stage, next to the bytes that they read.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from kongming.arrays import Floats
from kongming.spark.application import SUCCEEDED
from kongming.spark.model.cluster import Cluster
from kongming.spark.model.corrections.correction import Change, Lengths
from kongming.spark.model.corrections.first_tasks import FirstTasks
from kongming.spark.model.corrections.fresh_executors import present_executors, used_executors
from kongming.spark.model.workload import StageWork, Workload

LEAST_TASKS = 20
MOST_TASKS = 10_000
"""Tasks that the slope is learned from, evenly spread over the stages."""

MOST_KINDS = 300
FOLDS = 10
STEEPEST = -0.6
UNIT_S = 1.0
"""Age at which warming up begins to show."""

BEYOND = 2.0
"""Times the oldest recorded age up to which the slope is followed: no faster beyond."""

RIDGE = 1.0
"""Prior weight, in tasks, that a kind of stage is as long as the others."""


@dataclass(frozen=True, eq=False, slots=True)
class WarmUp:
    """``slope`` of the log length over the log age; ``ages`` (stages,) mean seconds that a slot had
    worked when the stage began; ``oldest`` of all tasks: little is known beyond. ``most_s``
    (stages,): the most that a first task of the stage's kind took longer than its others, which is
    as much as tasks of a cold executor are lengthened. ``first``: what of a length is no warm-up.
    """

    workload: Workload
    slope: float
    ages: Floats
    oldest: float
    most_s: Floats
    first: FirstTasks | None

    name = "warm-up"

    def apply(self, lengths: Lengths, change: Change) -> Lengths:
        old, new = change.recorded, change.target
        same = (old.executors, old.slots) == (new.executors, new.slots)
        if same or self.slope == 0.0:
            return lengths
        counts = [len(stage.lengths) for stage in self.workload.stages]
        recorded = expected_ages(self.workload, counts, change.recorded)
        target = expected_ages(self.workload, [len(own) for own in lengths], change.target)
        # Where no task had waited for a slot, what the asked size adds is all there is to tell.
        ratio = np.divide(target, recorded, out=np.ones(len(target)), where=recorded > 0.0)
        ages = np.where(recorded > 0.0, self.ages * ratio, np.maximum(self.ages, target))
        before = UNIT_S + self.ages
        after = UNIT_S + np.minimum(ages, np.maximum(BEYOND * self.oldest, self.ages))
        factors = (after / before) ** self.slope
        if self.first is None:
            return [
                own + np.minimum(own * (factor - 1.0), most)
                for own, factor, most in zip(lengths, factors, self.most_s, strict=True)
            ]
        shares = self.first.shares([len(own) for own in lengths], change)
        corrected = []
        for number, (own, share) in enumerate(zip(lengths, shares, strict=True)):
            if len(own) == counts[number]:
                warm = np.minimum(own, self.first.warm(number))
            else:
                warm = own - self.first.excess(number, share)
            more = warm * (factors[number] - 1.0)
            most = self.most_s[number] + self.first.application_s * share.application
            corrected.append(own + np.minimum(more, np.maximum(most - (own - warm), 0.0)))
        return corrected

    def remarks(self, change: Change) -> list[str]:
        return []


def expected_ages(workload: Workload, counts: Sequence[int], cluster: Cluster) -> Floats:
    """(stages,) mean seconds that a working slot has worked when a task begins, of the executors
    and slots that get tasks: others stay cold, and slow nothing."""
    used = used_executors(workload, counts, cluster)
    present = present_executors(counts, cluster)
    ages, worked = np.zeros(len(counts)), 0.0
    for number, (stage, count) in enumerate(zip(workload.stages, counts, strict=True)):
        if not count or stage.elsewhere:
            continue
        work = float(stage.lengths.sum())
        each = max(count / present[number], 1.0)
        waves = max(each / cluster.slots_mean, 1.0)
        ages[number] = worked / max(used[number], 1.0) + 0.5 * (waves - 1.0) * work / count
        worked += work / min(cluster.slots_mean, each)
    return ages


def learn_warm_up(workload: Workload, first: FirstTasks | None = None) -> WarmUp:
    """Learn from lengths without the excess of first tasks, which is another correction's."""
    ages = _ages(workload)
    means = np.array([float(own.mean()) if len(own) else 0.0 for own in ages])
    most_s = _most(workload, first)
    used = [
        (number, stage, own, good)
        for number, (stage, own) in enumerate(zip(workload.stages, ages, strict=True))
        if (good := _good(stage)).any()
    ]
    y, x, read, kinds = [], [], [], []
    each = max(MOST_TASKS // max(len(used), 1), 2)
    names: dict[str, int] = {}
    for number, stage, own, good in used:
        lengths = stage.lengths if first is None else first.warm(number)
        places = np.flatnonzero(good)
        if len(places) > each:
            places = places[np.linspace(0, len(places) - 1, each).astype(np.intp)]
        y.append(np.log(lengths[places]))
        x.append(np.log(UNIT_S + own[places]))
        read.append(np.log1p(_read(stage)[places] / 2.0**20))
        kinds += [names.setdefault(_kind(stage), len(names))] * len(places)
    if len(kinds) < LEAST_TASKS or len(names) > MOST_KINDS:
        return WarmUp(workload, 0.0, means, 0.0, most_s, first)
    oldest = float(max(own.max() for _, _, own, _ in used))
    owner = np.repeat(np.arange(len(y)), [len(own) for own in y])
    columns = (np.concatenate(y), np.concatenate(x), np.concatenate(read), np.array(kinds), owner)
    slope, error = _slope(columns), _error(columns)
    # Only what the log shows beyond chance, and never that old executors are slower.
    slope = float(np.clip(slope + 2.0 * error, STEEPEST, 0.0))
    return WarmUp(workload, slope, means, oldest, most_s, first)


def _most(workload: Workload, first: FirstTasks | None) -> Floats:
    """(stages,) the most seconds that a first task of a stage's kind took beyond the median of its
    stage without first ones. What starting an executor takes is apart."""
    most: dict[str, float] = {}
    for number, stage in enumerate(workload.stages):
        taken, usual = stage.lengths, stage.lengths[~stage.first_of_kind]
        if first is not None:
            taken = taken - first.application_s * stage.first_of_app
            usual = first.warm(number)
        taken = taken[stage.first_of_kind]
        if len(taken) and len(usual):
            longer = float(taken.max() - np.median(usual))
            most[stage.kind] = max(most.get(stage.kind, 0.0), longer)
    return np.array([most.get(stage.kind, 0.0) for stage in workload.stages])


def _good(stage: StageWork) -> np.ndarray:
    good: np.ndarray = (stage.tasks["status"] == SUCCEEDED) & (stage.lengths > 0.0)
    return good & ~stage.first_of_app


def _read(stage: StageWork) -> Floats:
    tasks = stage.tasks
    read = tasks["input_bytes"] + tasks["shuffle_local_bytes"] + tasks["shuffle_remote_bytes"]
    return np.asarray(read, dtype=np.float64)


def _kind(stage: StageWork) -> str:
    """Stages of the same RDDs and number of tasks do the same work on their data, as far as the log
    tells."""
    return " ".join(sorted(rdd.name for rdd in stage.attempt.rdds)) + f"#{len(stage.lengths)}"


def _ages(workload: Workload) -> list[Floats]:
    """(n,) of each stage: seconds that each slot of a task's executor had worked at its launch."""
    arrays = [stage.tasks for stage in workload.stages]
    together = np.concatenate(arrays)
    ages = np.zeros(len(together))
    for executor in np.unique(together["executor"]):
        own = np.flatnonzero(together["executor"] == executor)
        order = own[np.argsort(together["finish_s"][own], kind="stable")]
        # A clock that stepped back gives no negative age.
        lengths = np.maximum(together["finish_s"][order] - together["launch_s"][order], 0.0)
        worked = np.cumsum(lengths)
        before = np.searchsorted(together["finish_s"][order], together["launch_s"][own])
        ages[own] = np.concatenate([[0.0], worked])[before] / workload.slots[executor]
    ends = np.cumsum([len(array) for array in arrays])[:-1]
    return [np.asarray(own) for own in np.split(ages, ends)]


Columns = tuple[Floats, Floats, Floats, np.ndarray, np.ndarray]
"""Log length, log age, log bytes, number of the kind, number of the stage: (n,) each."""


def _slope(columns: Columns) -> float:
    """The slope over the log age, in a ridge regression with a term for the bytes and one for each
    kind of stage."""
    y, x, read, kinds, _ = columns
    count = int(kinds.max()) + 1
    A = np.zeros((len(y), count + 3))
    A[:, 0], A[:, 1], A[:, 2] = x, read, 1.0
    A[np.arange(len(y)), kinds + 3] = 1.0
    penalty = np.full(count + 3, RIDGE)
    penalty[:3] = 1e-9
    return float(np.linalg.solve(A.T @ A + np.diag(penalty), A.T @ y)[0])


def _error(columns: Columns) -> float:
    """Standard error of the slope by the jackknife over groups of stages: tasks of one stage are no
    independent observations."""
    groups = columns[4] % FOLDS
    if len(np.unique(groups)) < 3:
        return np.inf
    slopes = [
        _slope(tuple(column[groups != fold] for column in columns)) for fold in np.unique(groups)
    ]
    count = len(slopes)
    return float(np.sqrt((count - 1) / count * np.sum((np.array(slopes) - np.mean(slopes)) ** 2)))
