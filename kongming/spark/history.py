"""Lessons of other runs: of other applications on this cluster, and further runs of this one."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from kongming.arrays import Floats
from kongming.records.errors import InputError
from kongming.scale.fit.spark_replay import RESIDUAL_PRIOR
from kongming.spark.application import Application
from kongming.spark.finished_runs import require_finished
from kongming.spark.model.cluster import asked_cluster
from kongming.spark.model.corrections.growth import Growth
from kongming.spark.model.driver import driver_time
from kongming.spark.model.pipeline import Pipeline
from kongming.spark.model.workload import Workload, workload_of
from kongming.spark.sample_ratio import recorded_ratio, same_share

PRIOR = 1.0
"""Doublings squared that the prior (no growth) weighs."""


def learn_growth(applications: Sequence[Application], without: Sequence[str] = ()) -> Growth:
    """Learn how lengths grow from applications that ran at two sizes or more.

    Runs of one name are one application, of which those on one share of the input are compared;
    each run without a name is an application of its own.
    Each is predicted from each other size by all corrections;
    what is left of the total of task seconds, and the driver's time, is regressed on the doublings.
    Repeats of a size are one observation: their mean. What the growth of the others leaves of each
    application says how uncertain it is for one that is not among them.

    Raises:
        InputError: no application ran at two sizes, or one has not ended.
    """
    require_finished(applications, "--history")
    observed = []
    for shares in _by_name(applications):
        own = [each for works in shares for each in _observed(works, without)]
        if own:
            observed.append(own)
    if not observed:
        raise InputError(
            "holds no application that ran at two sizes.",
            field="--history",
            allowed="logs of one application at two numbers of slots or more",
        )
    tasks, driver = _slopes(observed)
    return Growth(tasks, driver, _scatter(observed))


def _by_name(applications: Sequence[Application]) -> Iterator[list[list[Workload]]]:
    """Yield the runs of each application, in a list for each share of the input."""
    by_name: dict[str, list[Application]] = {}
    for application in applications:
        by_name.setdefault(application.name or application.id, []).append(application)
    for own in by_name.values():
        runs: dict[float, list[Workload]] = {}
        least = 0.0
        for application in sorted(own, key=_share):
            if not same_share(_share(application), least):
                least = _share(application)
            runs.setdefault(least, []).append(workload_of(application))
        yield list(runs.values())


def _share(application: Application) -> float:
    return recorded_ratio(application) or 1.0


Observation = tuple[float, float, float]
"""Doublings from one size to another, and logs of measured over predicted: tasks, driver."""


def _observed(works: Sequence[Workload], without: Sequence[str]) -> list[Observation]:
    """Return what one application's runs leave of each pair of sizes, in both directions."""
    pairs: dict[tuple[tuple[int, int], ...], list[Observation]] = {}
    runs = [(work, Pipeline(work, without)) for work in works]
    for (own, pipeline), (other, _) in itertools.permutations(runs, 2):
        step = math.log2(other.cluster.slots / own.cluster.slots)
        if not step:
            continue
        target = asked_cluster(own.cluster, other.cluster.executors, other.cluster.cores)
        predicted = sum(float(each.sum()) for each in pipeline.replay(target).lengths)
        measured = sum(float(stage.lengths.sum()) for stage in other.stages)
        before = driver_time(own.application).total_s
        after = driver_time(other.application).total_s
        if min(predicted, measured, before, after) > 0.0:
            sizes = tuple((each.cluster.executors, each.cluster.cores) for each in (own, other))
            logs = math.log(measured / predicted), math.log(after / before)
            pairs.setdefault(sizes, []).append((step, *logs))
    return [
        (float(step), float(tasks), float(driver))
        for step, tasks, driver in (np.mean(repeats, axis=0) for repeats in pairs.values())
    ]


def _slopes(observed: Sequence[Sequence[Observation]]) -> tuple[float, float]:
    """Return the logs per doubling of the tasks' seconds and of the driver's."""
    x, tasks, driver = np.array([each for own in observed for each in own]).T
    # Both directions of a pair are one observation.
    weight = float(x @ x) + 2.0 * PRIOR
    return float(x @ tasks) / weight, float(x @ driver) / weight


def _scatter(observed: Sequence[Sequence[Observation]]) -> float | None:
    """Return the deviation per doubling of what the growth of the other applications leaves of each
    one's tasks; None of a single application."""
    if len(observed) < 2:
        return None
    squares = []
    for place, own in enumerate(observed):
        slope, _ = _slopes([*observed[:place], *observed[place + 1 :]])
        x, tasks, _ = np.array(own).T
        squares.append(float(np.mean(((tasks - slope * x) / x) ** 2)))
    return math.sqrt(sum(squares) / len(squares))


@dataclass(frozen=True, slots=True)
class Residual:
    """The log of measured over replayed as ``level`` + ``slope`` x doublings; ``deviation`` of
    what is left. ``observations``: doublings of the slots and log of each run that it is of."""

    level: float
    slope: float
    deviation: float
    observations: tuple[tuple[float, float], ...]

    @property
    def furthest(self) -> tuple[float, float]:
        doublings = [each for each, _ in self.observations]
        return min(doublings), max(doublings)

    def at(self, doublings: float) -> float:
        return self.level + self.slope * doublings

    def beyond(self, doublings: float) -> float:
        """Doublings from the nearest size that has been measured, 0 between two."""
        low, high = self.furthest
        return max(low - doublings, doublings - high, 0.0)

    def adding(self, doublings: float, log: float) -> Residual:
        """Return the residual of a further run too."""
        of_all = np.array([*self.observations, (doublings, log)])
        return learn_residual(of_all[:, 0], of_all[:, 1])


def learn_residual(doublings: Floats, logs: Floats) -> Residual:
    """Fit the residual of runs of the same application by ridge regression: the replay is the
    prior, the two terms (Ernest's constant and parallel part, in logs) move it.

    ``doublings`` (n,): of the slots from the recorded size; ``logs`` (n,): measured over replayed.
    """
    A = np.column_stack([np.ones(len(doublings)), doublings])
    solver = np.linalg.solve(A.T @ A + np.diag(RESIDUAL_PRIOR), A.T)
    terms = solver @ logs
    left = logs - A @ terms
    freedom = max(len(logs) - float(np.trace(A @ solver)), 1.0)
    deviation = float(np.sqrt(np.sum(left**2) / freedom))
    observations = tuple(zip(doublings.tolist(), logs.tolist(), strict=True))
    return Residual(float(terms[0]), float(terms[1]), deviation, observations)
