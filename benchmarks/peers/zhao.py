"""ZHAO: slowdown as a piecewise function of the pressure on the dominant contention factor.

After Zhao, Cui, Xue, Feng, Yan and Yang (PACT 2013). Which partition of the domain to use is
chosen for the node, over all applications; the coefficients are each application's own.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import nnls

from benchmarks.peers.observations import SOLO, Readings, observe
from benchmarks.peers.peer import Measured, Profile
from kongming.arrays import Floats
from kongming.records.errors import UntrainedError

CACHE, BANDWIDTH = 0, 1
BOTH = (CACHE, BANDWIDTH)
"""Columns of the aggregate pressures."""

QUANTILES = (0.2, 0.35, 0.5, 0.65, 0.8)
"""Of the loads' bandwidth pressures: where a partition may cut."""

CACHE_SIZES = ("8M", "LLChalf")
"""Working sets that live in the last-level cache."""


@dataclass(frozen=True, slots=True)
class Partition:
    """``cuts`` rise over bandwidth pressure; ``factors`` names those of each piece."""

    cuts: tuple[float, ...] = ()
    factors: tuple[tuple[int, ...], ...] = (BOTH,)

    def piece(self, pressures: Floats) -> NDArray[np.intp]:
        """(n,), the piece in which each row of ``pressures`` (n, 2) lies."""
        return np.searchsorted(np.array(self.cuts), pressures[:, BANDWIDTH], side="right")


@dataclass(frozen=True, eq=False, slots=True)
class Points:
    """One application's runs: pressures (n, 2), slowdowns (n,), and their load levels."""

    pressures: Floats
    slowdowns: Floats
    levels: tuple[str, ...]

    def take(self, rows: NDArray[np.intp]) -> Points:
        return Points(
            self.pressures[rows], self.slowdowns[rows], tuple(self.levels[i] for i in rows)
        )


@dataclass(frozen=True, eq=False, slots=True)
class Predictor:
    """One application's slowdown, piece by piece: intercept, cache, bandwidth over the cut."""

    partition: Partition
    coefficients: Floats

    def at(self, pressures: Floats) -> Floats:
        """(n,), the slowdown under ``pressures`` (n, 2), 1 or more."""
        pieces = self.partition.piece(pressures)
        rows = _design(pressures, self.partition, pieces)
        slowdowns = np.sum(rows * self.coefficients[pieces], axis=1)
        return np.asarray(np.maximum(slowdowns, 1.0), dtype=np.float64)


class Zhao:
    """Piecewise linear over the aggregate pressures on last-level cache and memory bandwidth.

    ``candidates`` are the partitions to choose from; None stands for those of the paper's kind
    at quantiles of the loads' pressures. The choice is in ``partition`` after ``fit``.
    """

    name = "ZHAO"

    def __init__(self, candidates: Sequence[Partition] | None = None) -> None:
        self._candidates = candidates

    def fit(self, profiles: Mapping[str, Profile], measured: Measured | None = None) -> None:
        """As ``Peer.fit``; needs load levels of caches and memory."""
        self._seen = seen = observe(profiles)
        if not seen.memory_levels:
            raise UntrainedError(
                "No run was under a load of caches and memory.",
                hint="Profile with more levels: kongming profile APPS.toml --plan quick",
            )
        names = seen.memory_probes()
        self._probes = (_cache_probes(names), _bandwidth_probes(names))
        if not all(self._probes):
            raise UntrainedError(
                "A probe of the last-level cache and one of memory bandwidth are needed at every "
                "load level and next to every application.",
                hint="Profile with the suite standard.",
            )
        points = {
            app: app_points for app in seen.apps if (app_points := self._points(app)) is not None
        }
        loads = np.array([self._pressures(seen.levels[level]) for level in seen.memory_levels])
        candidates = self._candidates or _candidates(loads[:, BANDWIDTH])
        self.partition = min(candidates, key=lambda c: _left_out_error(c, points.values()))
        self._predictors = {
            app: _predictor(self.partition, app_points) for app, app_points in points.items()
        }

    def slowdown(self, app: str, neighbour: str) -> float:
        """As ``Peer.slowdown``."""
        environment = self._seen.environment(neighbour)
        if self._seen.learned(app) not in self._predictors or not self._shows(environment):
            raise UntrainedError(
                f"{app} next to {neighbour} needs readings of the last-level cache and of memory "
                "bandwidth, in the runs of the one and in the signature of the other."
            )
        pressures = self._pressures(environment)
        return float(self._predictors[app].at(pressures[None, :])[0])

    def _shows(self, readings: Readings) -> bool:
        return all(any(name in readings for name in names) for names in self._probes)

    def _pressures(self, readings: Readings) -> Floats:
        """(2,), what the probes of each factor that were read are slowed by, less one."""
        slowed = [[readings[n] for n in names if n in readings] for names in self._probes]
        return np.array([max(math.expm1(sum(logs) / len(logs)), 0.0) for logs in slowed])

    def _points(self, app: str) -> Points | None:
        """The runs of ``app`` whose pressures are known; None without any."""
        runs = [
            run
            for run in self._seen.runs
            if run.app == app
            and (run.level == SOLO or run.level in self._seen.memory_levels)
            and self._shows(run.readings)
        ]
        if not runs:
            return None
        return Points(
            np.array([self._pressures(run.readings) for run in runs]),
            np.exp([run.slowdown for run in runs]),
            tuple(run.level for run in runs),
        )


def _cache_probes(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(name for name in names if name.rpartition(".")[2] in CACHE_SIZES)


def _bandwidth_probes(names: Iterable[str]) -> tuple[str, ...]:
    large = ("128M", "1G", "LLCx2")
    return tuple(
        name
        for name in names
        if name.startswith("stream.")
        or (name.startswith("memory.streaming.") and name.rpartition(".")[2] in large)
    )


def _candidates(loads: Floats) -> list[Partition]:
    """No cut first, so that it wins a tie; then one cut and two, over the loads' pressures."""
    places = sorted({float(q) for q in np.quantile(loads, QUANTILES)} - {0.0})
    cache, bandwidth = (CACHE,), (BANDWIDTH,)
    partitions = [Partition()]
    for cut in places:
        for factors in ((cache, bandwidth), (BOTH, bandwidth), (BOTH, BOTH)):
            partitions.append(Partition((cut,), factors))
    for cuts in itertools.combinations(places, 2):
        partitions.append(Partition(cuts, (cache, BOTH, bandwidth)))
    return partitions


def _design(pressures: Floats, partition: Partition, pieces: NDArray[np.intp]) -> Floats:
    """(n, 3): one, cache pressure, and bandwidth pressure beyond the start of the piece."""
    starts = np.array((0.0, *partition.cuts))
    rows = np.column_stack([np.ones(len(pressures)), pressures])
    rows[:, 1 + BANDWIDTH] -= starts[pieces]
    return rows


def _predictor(partition: Partition, points: Points) -> Predictor:
    """Least squares of the relative error, coefficients >= 0, in each piece.

    A piece with fewer runs than coefficients and one more is fitted to all runs instead.
    """
    pieces = partition.piece(points.pressures)
    coefficients = np.zeros((len(partition.factors), 3))
    for number, factors in enumerate(partition.factors):
        columns = [0, *(1 + factor for factor in factors)]
        inside = np.flatnonzero(pieces == number)
        if len(inside) <= len(columns):
            inside = np.arange(len(pieces))
        rows = _design(points.pressures[inside], partition, np.full(len(inside), number))
        slowdowns = points.slowdowns[inside]
        # Errors count relative to the slowdown, so both sides are divided by it.
        solution, _ = nnls(rows[:, columns] / slowdowns[:, None], np.ones(len(inside)))
        coefficients[number, columns] = solution
    return Predictor(partition, coefficients)


def _left_out_error(partition: Partition, applications: Iterable[Points]) -> float:
    """The mean relative error at a load level that was left out, over all applications."""
    errors: list[float] = []
    for points in applications:
        names = np.array(points.levels)
        for level in sorted(set(points.levels) - {SOLO}):
            train, test = np.flatnonzero(names != level), np.flatnonzero(names == level)
            if len(train):
                predicted = _predictor(partition, points.take(train)).at(points.pressures[test])
                errors += np.abs(predicted / points.slowdowns[test] - 1.0).tolist()
    return float(np.mean(errors)) if errors else math.inf
