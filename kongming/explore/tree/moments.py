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
        upper = np.triu_indices(self.width)
        self._products = Z[:, upper[0]] * Z[:, upper[1]]
        self._total = self._products.sum(axis=0)
        # Where the sums of products stand in the symmetric matrix of all of them.
        square = np.empty((self.width, self.width), dtype=np.intp)
        square[upper] = square.T[upper] = np.arange(len(upper[0]))
        self._left, self._right = square[:-1, :-1], square[:-1, -1]

    def errors(self, sides: np.ndarray, *, lines: bool) -> tuple[Floats, Floats, Floats]:
        """Return (k, 2) arrays, of the subsets by (k, n) booleans and of the rests: samples,
        squared error (of the line; of the mean unless ``lines``) and squared deviation from the
        mean."""
        both = self._sums(sides)
        count = both[..., 0]
        mean = both[..., self.width - 1] / np.maximum(count, 1.0)
        square = both[..., -1]
        deviation = np.maximum(square - count * mean**2, 0.0)
        if not lines:
            return count, deviation, deviation
        explained = (self._solve(both) * both.take(self._right, axis=-1)).sum(axis=-1)
        return count, np.clip(square - explained, 0.0, deviation), deviation

    def slopes(self, sides: np.ndarray) -> Floats:
        """(k, 2, 1 + p) least squares coefficients, the intercept first."""
        return self._solve(self._sums(sides))

    def _sums(self, sides: np.ndarray) -> Floats:
        """(k, 2, m) sums of products over the subset and the rest."""
        sums = sides.astype(np.float64) @ self._products
        both = np.empty((len(sums), 2, sums.shape[1]))
        both[:, 0] = sums
        np.subtract(self._total, sums, out=both[:, 1])
        return both

    def _solve(self, sums: Floats) -> Floats:
        left = sums.take(self._left, axis=-1)
        ridge = _RIDGE * (sums[..., 0] + 1.0)
        place = np.arange(self.width - 1)
        left[..., place, place] += ridge[..., None]
        right = sums.take(self._right, axis=-1)[..., None]
        return np.asarray(np.linalg.solve(left, right)[..., 0])
