"""A Gaussian process with a length scale for each dimension, choices included (mixed kernel)."""

from __future__ import annotations

from typing import Self

import numpy as np
from scipy.linalg import cho_factor, cho_solve, cholesky, solve_triangular
from scipy.optimize import minimize

from kongming.arrays import Floats

MOST = 1500
"""Runs that a process is fitted to, at the most."""
SMOOTH, ROUGH = "rbf", "matern"


class GaussianProcess:
    """Kriging with the mean of the values and a squared-exponential or a Matern 5/2 kernel,
    whichever is likelier.

    The columns of one dimension (``groups``, (p,) places) share a length scale, so that two
    choices of an unordered dimension are equally far from each other.
    """

    def __init__(
        self, seed: int = 0, groups: Floats | None = None, steps: int = 40, most_tuned: int = 250
    ) -> None:
        """``most_tuned``: runs by which the kernel is chosen, in so many ``steps``."""
        self.seed, self._groups = seed, groups
        self.steps, self.most_tuned = steps, most_tuned

    def fit(self, X: Floats, y: Floats) -> Self:
        rng = np.random.default_rng(self.seed)
        if len(X) > MOST:
            rows = np.sort(rng.choice(len(X), MOST, replace=False))
            X, y = X[rows], y[rows]
        groups = np.arange(X.shape[1]) if self._groups is None else self._groups
        self._members = (groups[:, None] == np.unique(groups)).astype(np.float64)
        self._mean, self._scale = float(y.mean()), float(y.std()) or 1.0
        self._X, self._y = X, (y - self._mean) / self._scale
        rows = np.arange(len(X))
        if len(X) > self.most_tuned:
            rows = np.sort(rng.choice(len(X), self.most_tuned, replace=False))
        self._tune(X[rows], self._y[rows])
        return self._condition(X, self._y)

    def condition(self, X: Floats, y: Floats) -> Self:
        """Take (n, p) runs and their values with the parameters that ``fit`` chose."""
        self._X, self._y = X, (y - self._mean) / self._scale
        return self._condition(self._X, self._y)

    def _condition(self, X: Floats, y: Floats) -> Self:
        kernel = self.covariance(X, X)
        kernel[np.diag_indices_from(kernel)] += self.noise + 1e-10
        for jitter in (0.0, 1e-8, 1e-6, 1e-4):
            try:
                kernel[np.diag_indices_from(kernel)] += jitter
                self._factor = cholesky(kernel, lower=True)
                break
            except np.linalg.LinAlgError:
                continue
        self._weights = cho_solve((self._factor, True), y)
        return self

    def predict(self, X: Floats) -> Floats:
        parts = [
            self.covariance(X[start : start + 8192], self._X) @ self._weights
            for start in range(0, len(X), 8192)
        ]
        return np.asarray(self._mean + self._scale * np.concatenate([np.empty(0), *parts]))

    def held_out(self, folds: np.ndarray) -> Floats:
        """The prediction of each run by the runs of the other (n,) ``folds``."""
        inverse = cho_solve((self._factor, True), np.eye(len(self._y)))
        predicted = np.empty(len(self._y))
        for fold in np.unique(folds):
            rows = folds == fold
            misses = np.linalg.solve(inverse[np.ix_(rows, rows)], self._weights[rows])
            predicted[rows] = self._y[rows] - misses
        return np.asarray(self._mean + self._scale * predicted)

    def whitened(self, X: Floats) -> Floats:
        """(runs, n): the covariance of points with the runs, in which runs are independent. The
        posterior covariance is ``covariance(A, B) - whitened(A).T @ whitened(B)``, in units of the
        target's variance."""
        return np.asarray(solve_triangular(self._factor, self.covariance(self._X, X), lower=True))

    def stretched(self, X: Floats) -> Floats:
        """(n, p) columns in units of their length scales."""
        return np.asarray(X * np.sqrt(self._members @ np.exp(-2.0 * self._lengths)))

    def covariance(self, A: Floats, B: Floats) -> Floats:
        """(a, b) prior covariances."""
        squared = squared_distances(self.stretched(A), self.stretched(B))
        return self._amplitude * shape_and_slope(squared, self.kernel)[0]

    def _tune(self, X: Floats, y: Floats) -> None:
        parts = np.array(
            [squared_distances(X * m, X * m) for m in self._members.T]
        )  # (dimensions, n, n)
        d = len(parts)
        best: tuple[float, str, Floats] | None = None
        start = np.concatenate([np.full(d, np.log(0.5 * np.sqrt(d))), [0.0, np.log(1e-4)]])
        bounds = [(np.log(0.03), np.log(30.0))] * d + [(-3.0, 6.0), (np.log(1e-8), 0.5)]
        for kernel in (SMOOTH, ROUGH):
            result = minimize(
                _negative_likelihood,
                start,
                args=(parts, y, kernel),
                jac=True,
                method="L-BFGS-B",
                bounds=bounds,
                options={"maxiter": self.steps},
            )
            if best is None or result.fun < best[0]:
                best = float(result.fun), kernel, result.x
        assert best is not None
        self.kernel = best[1]
        self._lengths = best[2][:d]
        self._amplitude, self.noise = float(np.exp(best[2][d])), float(np.exp(best[2][d + 1]))

    @property
    def evidence(self) -> float:
        """Log likelihood of the runs, less what as many numbers as were chosen by it gain by chance
        (Schwarz 1978). Comparable between processes of the same values."""
        misfit = 0.5 * float(self._y @ self._weights)
        volume = float(np.log(np.diag(self._factor)).sum())
        return -misfit - volume - 0.5 * self._numbers * float(np.log(len(self._y)))

    @property
    def _numbers(self) -> int:
        """Numbers that the likelihood chose."""
        return len(self._lengths) + 2

    @property
    def prior_variance(self) -> float:
        """Return the variance of every point before any run, in units of the target's variance."""
        return self._amplitude


def squared_distances(A: Floats, B: Floats) -> Floats:
    squared = (A**2).sum(axis=1)[:, None] + (B**2).sum(axis=1) - 2.0 * A @ B.T
    return np.asarray(np.maximum(squared, 0.0))


def shape_and_slope(squared: Floats, kernel: str) -> tuple[Floats, Floats]:
    """The kernel at squared distances, and its derivative by them, times -2."""
    if kernel == SMOOTH:
        shape = np.asarray(np.exp(-0.5 * squared))
        return shape, shape
    root = np.sqrt(5.0 * squared)
    decay = np.exp(-root)
    return (1.0 + root + 5.0 / 3.0 * squared) * decay, 5.0 / 3.0 * (1.0 + root) * decay


def negative_log_likelihood(K: Floats, noise: float, y: Floats) -> tuple[float, Floats] | None:
    """Return the value for ``y`` (n,) with prior covariances ``K`` (n, n), to which the noise is
    added in place; and (n, n) its derivative by these, times -2. None where K is singular."""
    n = len(y)
    K[np.diag_indices(n)] += noise + 1e-9
    try:
        factor = cho_factor(K, lower=True)
    except np.linalg.LinAlgError:
        return None
    weights = cho_solve(factor, y)
    value = 0.5 * y @ weights + np.log(np.diag(factor[0])).sum()
    return float(value), np.outer(weights, weights) - cho_solve(factor, np.eye(n))


def _negative_likelihood(
    parameters: Floats, parts: Floats, y: Floats, kernel: str
) -> tuple[float, Floats]:
    """And its gradient; a weak prior keeps dimensions without effect from drifting."""
    d = len(parts)
    lengths, amplitude, noise = parameters[:d], np.exp(parameters[d]), np.exp(parameters[d + 1])
    scaled = np.exp(-2.0 * lengths)
    squared = np.tensordot(scaled, parts, axes=1)
    shape, slope = shape_and_slope(squared, kernel)
    likelihood = negative_log_likelihood(amplitude * shape, noise, y)
    if likelihood is None:
        return 1e10, np.zeros_like(parameters)
    value, outer = likelihood
    gradient = np.empty_like(parameters)
    rise = outer * slope * amplitude
    # d(kernel)/d(log length) is slope * amplitude * part / length^2.
    gradient[:d] = -0.5 * scaled * np.tensordot(parts, rise, axes=([1, 2], [0, 1]))
    gradient[d] = -0.5 * (outer * shape).sum() * amplitude
    gradient[d + 1] = -0.5 * np.trace(outer) * noise
    prior = parameters[:d] - 0.5
    return value + 0.05 * float((prior**2).sum()), gradient + np.concatenate(
        [0.1 * prior, [0.0, 0.0]]
    )
