"""PARAGON: what an application tolerates and what it causes, by collaborative filtering.

After Delimitrou and Kozyrakis (ASPLOS 2013). Their two matrices, applications by sources of
interference tolerated and caused, are two parts of one here: its rows are whatever is slowed
(applications, and the surrogates as probes), its columns whatever slows (load levels, and
applications as neighbours). Pairs are its missing corner.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from benchmarks.peers.factorisation import complete
from benchmarks.peers.observations import Observations, observe
from benchmarks.peers.peer import Measured, Pair, Profile
from kongming.arrays import Floats
from kongming.records.errors import UntrainedError

RANKS = (1, 2, 3, 5)
PENALTIES = (0.003, 0.03, 0.1, 0.3)
FOLDS = 5
DEFAULT = (2, 0.1)
"""Rank and penalty where there are too few load levels to choose them."""

LEAST_SPREAD = 0.05
"""A surrogate that no load slows by more is not scaled up: that would be noise."""


class Paragon:
    """One matrix of log slowdowns, completed by factors of low rank.

    ``rank`` and ``penalty`` are chosen in ``fit`` by leaving load levels out of the
    applications' rows, which is how a neighbour's column looks.
    """

    name = "PARAGON"

    def fit(self, profiles: Mapping[str, Profile], measured: Measured | None = None) -> None:
        """As ``Peer.fit``; needs one load level."""
        self._seen = observe(profiles)
        if not self._seen.levels:
            raise UntrainedError(
                "No run was under a load.",
                hint="Profile the applications: kongming profile APPS.toml --plan quick",
            )
        self._build(self._seen)
        self.rank, self.penalty = self._choose()
        self._completed = self._complete(self._matrix, self.rank, self.penalty)

    def slowdown(self, app: str, neighbour: str) -> float:
        """As ``Peer.slowdown``."""
        place = self._place(app, neighbour)
        return math.exp(max(float(self._completed[place]), 0.0))

    def tolerated(self, app: str) -> dict[str, float]:
        """The slowdown of ``app`` at each load level, measured there or not: its full row."""
        row = self._completed[self._rows[self._seen.learned(app)]]
        return {
            level: math.exp(max(float(row[j]), 0.0)) for level, j in self._level_columns.items()
        }

    def _build(self, seen: Observations) -> None:
        probes = sorted({n for r in (*seen.levels.values(), *seen.signatures.values()) for n in r})
        self._rows = {app: i for i, app in enumerate(seen.apps)}
        self._level_columns = {level: j for j, level in enumerate(seen.levels)}
        self._columns = {app: len(seen.levels) + j for j, app in enumerate(seen.signatures)}
        apps, width = len(seen.apps), len(seen.levels) + len(seen.signatures)
        matrix = np.full((apps + len(probes), width), np.nan)
        for app, i in self._rows.items():
            for level, slowdown in seen.response(app).items():
                matrix[i, self._level_columns[level]] = slowdown
        for j, readings in enumerate((*seen.levels.values(), *seen.signatures.values())):
            for k, name in enumerate(probes):
                matrix[apps + k, j] = readings.get(name, np.nan)
        self._matrix = matrix
        self._apps = apps
        self._groups = np.repeat([0, 1], [apps, len(probes)])
        self._scales = _scales(matrix, apps)

    def _place(self, app: str, neighbour: str) -> tuple[int, int]:
        row = self._rows[self._seen.learned(app)]
        self._seen.environment(neighbour)
        return row, self._columns[neighbour]

    def _complete(self, matrix: Floats, rank: int, penalty: float) -> Floats:
        scaled = matrix / self._scales[:, None]
        completed = complete(scaled, rank=rank, penalty=penalty, groups=self._groups)
        return np.asarray(completed * self._scales[:, None], dtype=np.float64)

    def _choose(self) -> tuple[int, float]:
        levels = np.array(list(self._level_columns.values()), dtype=np.intp)
        folds = [levels[k::FOLDS] for k in range(min(FOLDS, len(levels)))]
        known = np.isfinite(self._matrix[: self._apps, levels])
        if len(folds) < 2 or not known.any():
            return DEFAULT
        return min(
            itertools.product(RANKS, sorted(PENALTIES, reverse=True)),
            key=lambda setting: self._left_out_error(folds, *setting),
        )

    def _left_out_error(
        self, folds: Sequence[NDArray[np.intp]], rank: int, penalty: float
    ) -> float:
        errors: list[float] = []
        for fold in folds:
            matrix = self._matrix.copy()
            truth = matrix[: self._apps, fold].copy()
            matrix[: self._apps, fold] = np.nan
            completed = self._complete(matrix, rank, penalty)
            predicted = np.maximum(completed[: self._apps, fold], 0.0)
            errors += np.abs(predicted - truth)[np.isfinite(truth)].tolist()
        return float(np.mean(errors)) if errors else math.inf


class ParagonPairs(Paragon):
    """PARAGON that also learns from measured pairs: more than the budget of the others.

    The pair that is predicted is left out in both directions.
    """

    name = "PARAGON-PAIRS"

    def fit(self, profiles: Mapping[str, Profile], measured: Measured | None = None) -> None:
        """As ``Peer.fit``; pairs of applications that have no profile are passed over."""
        super().fit(profiles, measured)
        self._pairs: dict[tuple[int, int], float] = {}
        for (app, neighbour), slowdown in (measured or {}).items():
            if app in self._rows and neighbour in self._columns and slowdown > 0.0:
                place = self._rows[app], self._columns[neighbour]
                self._pairs[place] = math.log(slowdown)
        self._without: dict[frozenset[str], Floats] = {}

    def slowdown(self, app: str, neighbour: str) -> float:
        """As ``Peer.slowdown``."""
        place = self._place(app, neighbour)
        both = frozenset((app, neighbour))
        if both not in self._without:
            matrix = self._matrix_without((app, neighbour))
            self._without[both] = self._complete(matrix, self.rank, self.penalty)
        return math.exp(max(float(self._without[both][place]), 0.0))

    def _matrix_without(self, pair: Pair) -> Floats:
        scored = {
            (self._rows[a], self._columns[b]) for a, b in (pair, pair[::-1]) if b in self._columns
        }
        matrix = self._matrix.copy()
        for place, value in self._pairs.items():
            if place not in scored:
                matrix[place] = value
        return matrix


def _scales(matrix: Floats, apps: int) -> Floats:
    """(n,): applications share one scale, so that few entries suffice for one of them; each
    surrogate has its own, so that a disk that is ten times slower does not decide the factors."""
    known = np.isfinite(matrix)
    squares = np.where(known, matrix, 0.0) ** 2
    spread = np.sqrt(np.sum(squares, axis=1) / np.maximum(np.sum(known, axis=1), 1))
    spread[:apps] = np.sqrt(np.sum(squares[:apps]) / max(np.sum(known[:apps]), 1))
    return np.asarray(np.maximum(spread, LEAST_SPREAD), dtype=np.float64)
