"""Least squares of many subsets of the same samples at once, from sums of products."""

from __future__ import annotations

import numpy as np

from kongming.arrays import Floats

_RIDGE = 1e-8
"""Of the number of samples: decides only what they leave open."""


class Moments:
    """Sums of products of ``Z = [1, X, y]`` over subsets of the samples, from (n, p) and (n,)
    centred and scaled values."""

    def __init__(self, X: Floats, y: Floats) -> None:
        Z = np.column_stack([np.ones(len(X)), X, y])
        self.width = Z.shape[1]
        self._upper = np.triu_indices(self.width)
        self._products = Z[:, self._upper[0]] * Z[:, self._upper[1]]
        self._total = self._products.sum(axis=0)

    def errors(self, sides: np.ndarray, *, lines: bool) -> tuple[Floats, Floats, Floats]:
        """For (k, n) booleans, of both the subset and the rest, (k, 2) arrays: samples, squared
        error (of the line; of the mean unless ``lines``) and squared deviation from the mean;"""
        sums = sides.astype(np.float64) @ self._products
        both = np.stack([sums, self._total - sums], axis=1)
        count = both[..., 0]
        mean = both[..., self.width - 1] / np.maximum(count, 1.0)
        square = both[..., -1]
        deviation = np.maximum(square - count * mean**2, 0.0)
        if not lines:
            return count, deviation, deviation
        grams = self._grams(both)
        slopes = self._solve(grams)
        explained = (slopes * grams[..., :-1, -1]).sum(axis=-1)
        return count, np.clip(square - explained, 0.0, deviation), deviation

    def slopes(self, sides: np.ndarray) -> Floats:
        """(k, 2, 1 + p) least squares coefficients, the intercept first."""
        sums = sides.astype(np.float64) @ self._products
        return self._solve(self._grams(np.stack([sums, self._total - sums], axis=1)))

    def _grams(self, sums: Floats) -> Floats:
        grams = np.empty((*sums.shape[:-1], self.width, self.width))
        grams[..., self._upper[0], self._upper[1]] = sums
        grams[..., self._upper[1], self._upper[0]] = sums
        return grams

    def _solve(self, grams: Floats) -> Floats:
        left = grams[..., :-1, :-1].copy()
        ridge = _RIDGE * (grams[..., 0, 0] + 1.0)
        place = np.arange(self.width - 1)
        left[..., place, place] += ridge[..., None]
        return np.asarray(np.linalg.solve(left, grams[..., :-1, -1:])[..., 0])
