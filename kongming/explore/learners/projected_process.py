"""A Gaussian process over a few learned directions: for values that follow a product, a ratio or a
sum of dimensions rather than each of them."""

from __future__ import annotations

import numpy as np
from scipy.optimize import minimize

from kongming.arrays import Floats
from kongming.explore.learners.gaussian_process import (
    ROUGH,
    SMOOTH,
    GaussianProcess,
    negative_log_likelihood,
    shape_and_slope,
    squared_distances,
)
from kongming.explore.learners.perceptrons import PerceptronCommittee

_MOST_DIRECTIONS = 3
RUNS_EACH = 3
"""Runs for each number in a direction."""
_SCREENED = 120
"""Runs by which starts are compared."""
_RANDOM_STARTS = 24
_REACHES = (1.0, 3.0, 8.0)
"""How often a value turns along a direction, at first."""
_FINALISTS = 8
_SCREENING_STEPS, _STEPS = 15, 40
_MOST_WEIGHT = 40.0
_WEIGHT_PRIOR = 1e-3
_NOISE = 1e-2


class ProjectedProcess(GaussianProcess):
    """Kriging in which two points are as far from each other as their projections on up to three
    directions, which are chosen with the kernel by the likelihood (Vivarelli and Williams 1999).

    The likelihood has many optima: it is climbed from random directions, and from those along
    which a network changes most (active subspaces, Constantine 2015).
    """

    def held_out(self, folds: np.ndarray) -> Floats:
        """Predict left-out runs as a Gaussian process does. They had a part in choosing the
        directions, so misses are enlarged by the share of runs that their numbers take up. Where
        that is more than a half they are chosen again without each fold: along directions with as
        many numbers as runs any values are interpolated, and no factor makes up for that."""
        n, numbers = len(self._y), self._numbers
        values = self._mean + self._scale * self._y
        if 2 * numbers > n:
            return self._refitted(values, folds)
        return np.asarray(values - (values - self.along_directions(folds)) * n / (n - numbers))

    def along_directions(self, folds: np.ndarray) -> Floats:
        """The prediction of each run by the runs of the other (n,) ``folds``, along the directions
        that all runs chose."""
        return super().held_out(folds)

    def _refitted(self, values: Floats, folds: np.ndarray) -> Floats:
        """The prediction of each run by a process that was fitted to the other (n,) ``folds``."""
        predicted = np.empty(len(values))
        for fold in np.unique(folds):
            rows = folds == fold
            rest = type(self)(self.seed, self._groups, self.steps, self.most_tuned)
            predicted[rows] = rest.fit(self._X[~rows], values[~rows]).predict(self._X[rows])
        return predicted

    @property
    def _numbers(self) -> int:
        return self._directions.size + 2

    def stretched(self, X: Floats) -> Floats:
        """(n, directions): projections, in units of their length scales."""
        return np.asarray(X @ self._directions.T)

    def _tune(self, X: Floats, y: Floats) -> None:
        rng = np.random.default_rng(self.seed)
        n, p = X.shape
        count = max(1, min(_MOST_DIRECTIONS, p, n // (RUNS_EACH * p)))
        few = np.sort(rng.choice(n, min(n, _SCREENED), replace=False))
        active = _active(X, y, count, self.seed)
        starts = [active * reach for reach in _REACHES]
        widths = np.array([3.0, *[0.5] * (count - 1)])[:, None]
        starts += [rng.normal(size=(count, p)) * widths for _ in range(_RANDOM_STARTS)]
        screened = [
            _climb(np.concatenate([at.ravel(), [0.0, np.log(_NOISE)]]), X[few], y[few], SMOOTH)
            for at in starts
        ]
        screened.sort(key=lambda climbed: climbed[0])
        ends = (
            (*_climb(start, X, y, kernel, _STEPS), kernel)
            for _, start in screened[:_FINALISTS]
            for kernel in (SMOOTH, ROUGH)
        )
        _, best, self.kernel = min(ends, key=lambda end: end[0])
        self._directions = best[:-2].reshape(count, p)
        self._amplitude, self.noise = float(np.exp(best[-2])), float(np.exp(best[-1]))


def _active(X: Floats, y: Floats, count: int, seed: int) -> Floats:
    """(count, p) directions along which perceptrons change most, of length 1 together."""
    sizes, directions = np.linalg.eigh(PerceptronCommittee(seed).fit(X, y).slopes(X))
    chosen = directions[:, ::-1][:, :count] * np.sqrt(np.maximum(sizes[::-1][:count], 0.0))
    return np.asarray(chosen.T / max(float(np.linalg.norm(chosen)), 1e-12))


def _climb(
    start: Floats, X: Floats, y: Floats, kernel: str, steps: int = _SCREENING_STEPS
) -> tuple[float, Floats]:
    """The negative log likelihood where so many steps end, and the parameters there."""
    bounds = [(-_MOST_WEIGHT, _MOST_WEIGHT)] * (len(start) - 2)
    result = minimize(
        negative_likelihood,
        start,
        args=(X, y, kernel),
        jac=True,
        method="L-BFGS-B",
        bounds=[*bounds, (-3.0, 6.0), (np.log(1e-8), 0.5)],
        options={"maxiter": steps},
    )
    return float(result.fun), np.asarray(result.x)


def negative_likelihood(
    parameters: Floats, X: Floats, y: Floats, kernel: str
) -> tuple[float, Floats]:
    """And its gradient, of the directions (r p,), the log amplitude and the log noise; a weak prior
    keeps directions without effect from drifting."""
    directions = parameters[:-2].reshape(-1, X.shape[1])
    amplitude, noise = np.exp(parameters[-2]), np.exp(parameters[-1])
    projected = X @ directions.T
    shape, slope = shape_and_slope(squared_distances(projected, projected), kernel)
    likelihood = negative_log_likelihood(amplitude * shape, noise, y)
    if likelihood is None:
        return 1e10, np.zeros_like(parameters)
    value, outer = likelihood
    by_squared = 0.25 * amplitude * outer * slope
    sums = by_squared.sum(axis=1)[:, None]
    by_directions = 4.0 * ((projected * sums).T @ X - projected.T @ by_squared @ X)
    gradient = np.concatenate(
        [
            (by_directions + 2.0 * _WEIGHT_PRIOR * directions).ravel(),
            [-0.5 * (outer * shape).sum() * amplitude, -0.5 * np.trace(outer) * noise],
        ]
    )
    return value + _WEIGHT_PRIOR * float((directions**2).sum()), gradient
