"""Posterior variance of a linear model of a profile's runs: the environments it knows little of.

Members of a consensus agree where none of them knows: of few runs, all learn the same few effects,
and all read whatever moves a column together with a loaded one as that load. A Bayesian linear
model without intercept (Rasmussen and Williams, Gaussian Processes for Machine Learning, 2006,
section 2.1) says how much is not known of an environment: what of it lies in directions in which no
training run went. The variance of the effects over that of the noise is the one of greatest
marginal likelihood (section 5.4).

That variance takes for granted that the model is right. By how much the error on new runs exceeds
that on n training runs, of which the model takes k degrees of freedom, is (n / (n - k))^2 - 1 by
generalized cross-validation (Golub, Heath and Wahba, Technometrics 21, 1979), with which it is
multiplied: much of few runs, little of many. n counts the runs under a load, as solo runs say
nothing of effects. Which factor it is was chosen on recordings: see benchmarks/accuracy.

A column that no training run moved as far counts as far as they moved it: what is beyond slows a
program more, if anything, so that it is no reason to predict less than without it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from kongming.arrays import Floats
from kongming.files.sealed_document import finite

_RATIOS = (1e-4, 1e4)
"""Bounds of the search for the variance of the effects over that of the noise."""

_STEPS = 33
"""Steps of the first search, a quarter of a power of ten each: a likelihood may have several
maxima, of which the second search sees the nearest."""

_LONGEST = 1.0 + 1e-6
"""Greatest length of a direction in a document: 1, and what rounding adds."""

_LEAST = 1e-12
"""Least variance of the noise, and the least share of a direction that is kept."""


@dataclass(frozen=True, eq=False)
class Posterior:
    """The variance ``effect`` of a log slowdown per squared length of a move, and what training
    runs take off it: ``directions`` (r, p) in which they went, each as long as it is known (at most
    1). ``most`` (p,) is how far they moved each column."""

    effect: float
    directions: Floats
    most: Floats

    @cached_property
    def root(self) -> Floats:
        """The symmetric matrix (p, p) by which a move is as long as the root of its variance."""
        _, known, right = np.linalg.svd(self.directions, full_matrices=False)
        left_open = np.sqrt(np.maximum(1.0 - known**2, 0.0))
        matrix = np.eye(len(self.most)) - (right.T * (1.0 - left_open)) @ right
        return np.asarray(math.sqrt(self.effect) * matrix, dtype=np.float64)

    def variance(self, features: Floats) -> Floats:
        """Return (n,) variances of the log slowdowns of ``features`` (n, p)."""
        if not self.effect:
            return np.zeros(len(features))
        moves = np.minimum(features, self.most) @ self.root
        # As einsum, in a third of the time on a single row, of which there are most.
        return np.asarray(np.vecdot(moves, moves), dtype=np.float64)

    def freeze(self) -> dict[str, Any]:
        """Return it as JSON, which ``thawed`` reads."""
        return {
            "effect": self.effect,
            "directions": self.directions.tolist(),
            "most": self.most.tolist(),
        }


NOTHING_OPEN = Posterior(0.0, np.zeros((0, 0)), np.zeros(0))
"""Of documents that lack one: no variance anywhere."""


def thawed(document: Mapping[str, Any], columns: int) -> Posterior:
    """Read a frozen posterior over that many columns. Raises ValueError, KeyError and TypeError."""
    given = document["directions"]
    # There are no more directions than columns.
    if not isinstance(given, list) or len(given) > columns:
        raise ValueError("directions")
    rows = [[finite(value) for value in row] for row in given]
    effect = finite(document["effect"])
    most = [finite(value) for value in document["most"]]
    if effect < 0.0 or any(len(row) != columns for row in (*rows, most)):
        raise ValueError("posterior")
    if any(math.hypot(*row) > _LONGEST for row in rows):
        raise ValueError("a direction longer than 1")
    directions = np.array(rows, dtype=np.float64).reshape(len(rows), columns)
    return Posterior(effect, directions, np.array(most, dtype=np.float64))


def learn(X: Floats, y: Floats, *, loads: int) -> Posterior:
    """Learn from features (n, p), which are 0 where nothing is loaded, and log slowdowns (n,) of
    runs of which so many are under a load."""
    # Predictions read what was learned, and load no solver.
    from scipy.optimize import minimize_scalar

    n, p = len(X), X.shape[1]
    most = np.asarray(X.max(axis=0), dtype=np.float64)
    left, size, right = np.linalg.svd(X, full_matrices=False)
    size = size**2
    along = (left.T @ y) ** 2
    across = max(float(y @ y - along.sum()), 0.0)
    if not size.any() or not along.any():
        return Posterior(0.0, np.zeros((0, p)), most)

    def noise(ratio: float) -> float:
        within = float(np.sum(along / (1.0 + ratio * size)))
        return max((within + across) / n, _LEAST)

    def unlikely(log_ratio: float) -> float:
        ratio = math.exp(log_ratio)
        spread = float(np.sum(np.log1p(ratio * size)))
        return 0.5 * (n * math.log(noise(ratio)) + spread)

    steps = np.log(np.geomspace(_RATIOS[0], _RATIOS[1], _STEPS)).tolist()
    best = min(range(_STEPS), key=lambda i: unlikely(steps[i]))
    bounds = steps[max(best - 1, 0)], steps[min(best + 1, _STEPS - 1)]
    ratio = math.exp(float(minimize_scalar(unlikely, bounds=bounds, method="bounded").x))
    known = ratio * size / (1.0 + ratio * size)
    left_over = max(loads - float(known.sum()), 1.0)
    optimism = max((loads / left_over) ** 2 - 1.0, 0.0)
    shown = known > _LEAST
    directions = np.sqrt(known[shown])[:, None] * right[shown]
    return Posterior(noise(ratio) * ratio * optimism, directions, most)
