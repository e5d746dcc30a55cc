"""Least squares for many selections of rows and columns in one pass over the data."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from kongming.arrays import Floats
from kongming.learning.estimators.base import standardisation
from kongming.learning.estimators.fitness import Flags, LeftOut

__all__ = ["Gram"]

RIDGE = 1e-8
"""Share of a standardised column's summed squares that is added to its own: it has an effect only
on singular selections, such as those of duplicate columns."""

_TOGETHER = 10
"""How many selections of similar size are solved at once."""


class Gram:
    """The normal equations of every selection, as sums over its observations.

    Each row's outer product with itself (intercept, standardised columns and target) is computed
    once. A selection's Gram matrix is the sum over its observations; that of a fold is this sum
    without the left-out ones; its least squares fit is a solve of the block of the selected
    columns.
    """

    def __init__(self, X: Floats, y: Floats, left_out: LeftOut) -> None:
        n, p = X.shape
        self._mean, self._scale = standardisation(X)
        self._center = float(np.mean(y))
        # The last column is 0: it pads selections to one size and has no effect.
        self._rows = np.column_stack(
            [np.ones(n), (X - self._mean) / self._scale, y - self._center, np.zeros(n)]
        )
        self._target, self._padding = p + 1, p + 2
        q = p + 3
        self._added = np.einsum("ni,nj->nij", self._rows, self._rows).reshape(n, q * q)
        self._left_out = left_out

    def errors(self, observations: Flags, columns: Flags) -> Floats:
        """See ``Scorer``."""
        errors = np.full(len(columns), np.inf)
        if self._left_out:
            order = np.argsort(columns.sum(axis=1), kind="stable")
            for start in range(0, len(order), _TOGETHER):
                some = order[start : start + _TOGETHER]
                errors[some] = self._errors(observations[some], columns[some])
        return errors

    def solve(self, observations: Flags, columns: Flags) -> tuple[Floats, float]:
        """Return the coefficients (p,), 0 for columns not selected, and the intercept of one
        selection (n,), (p,), in the units of ``X`` and ``y``."""
        weights = observations[None, :].astype(np.float64)
        chosen = self._chosen(columns[None, :])
        solved = self._solve((weights @ self._added)[:, None], weights.sum(axis=1)[:, None], chosen)
        coefficients = np.zeros(self._rows.shape[1])
        coefficients[chosen[0]] = solved[0, 0]
        coef = np.where(columns, coefficients[1 : self._target] / self._scale, 0.0)
        return coef, self._center + float(coefficients[0]) - float(self._mean @ coef)

    def _errors(self, observations: Flags, columns: Flags) -> Floats:
        weights = observations.astype(np.float64)
        tests = self._left_out.tests
        totals, count = weights @ self._added, weights.sum(axis=1)
        matrices = np.empty((len(weights), len(tests), totals.shape[1]))
        counts = np.empty((len(weights), len(tests)))
        for number, test in enumerate(tests):
            matrices[:, number] = totals - weights[:, test] @ self._added[test]
            counts[:, number] = count - weights[:, test].sum(axis=1)
        chosen = self._chosen(columns)
        solved = self._solve(matrices, counts, chosen)
        missed = np.zeros(len(weights))
        coef = np.zeros((len(weights), self._rows.shape[1]))
        for number, (test, cost) in enumerate(zip(tests, self._left_out.costs, strict=True)):
            np.put_along_axis(coef, chosen, solved[:, number], axis=1)
            predicted = coef @ self._rows[test].T
            missed += np.abs(predicted - self._rows[test, self._target]) @ cost
        return np.where((counts > 0.5).all(axis=1), missed, np.inf)

    def _chosen(self, columns: Flags) -> NDArray[np.intp]:
        """Return (k, m): positions in a row of the intercept and the selected columns, then
        padding.
        """
        counts = columns.sum(axis=1)
        # A stable sort puts the positions of the selected columns first, in their order.
        first = np.argsort(~columns, axis=1, kind="stable")[:, : int(counts.max())]
        chosen = np.zeros((len(columns), 1 + first.shape[1]), dtype=np.intp)
        chosen[:, 1:] = np.where(
            np.arange(first.shape[1]) < counts[:, None], 1 + first, self._padding
        )
        return chosen

    def _solve(self, matrices: Floats, counts: Floats, chosen: NDArray[np.intp]) -> Floats:
        """Return coefficients (k, f, m) from ``matrices`` (k, f, q * q), the number of rows in each
        (k, f) and the chosen positions (k, m)."""
        q = self._rows.shape[1]
        k, folds, m = *matrices.shape[:2], chosen.shape[1]
        block = (chosen[:, :, None] * q + chosen[:, None, :]).reshape(k, 1, m * m)
        left = np.take_along_axis(matrices, block, axis=2).reshape(k, folds, m, m)
        right = np.take_along_axis(matrices, (chosen * q + self._target)[:, None, :], axis=2)
        # Without rows any finite solution is acceptable.
        ridge = RIDGE * np.maximum(counts, 1.0)
        steady = np.where(chosen[:, None, :] == self._padding, 1.0, ridge[:, :, None])
        steady[:, :, 0] = np.where(counts > 0.5, 0.0, 1.0)
        diagonal = np.arange(m)
        left[:, :, diagonal, diagonal] += steady
        return np.asarray(np.linalg.solve(left, right[..., None])[..., 0], dtype=np.float64)
