"""Least squares in all columns, or in their products of pairs as well."""

from __future__ import annotations

from typing import Self

import numpy as np

from kongming.arrays import Floats
from kongming.explore.tree.lines import fit_line

_MOST_PAIRED = 24
"""Columns whose products are taken: those that follow the target most closely."""


class LeastSquares:
    """A line, with the penalty of least leave-one-out error."""

    def __init__(self, seed: int = 0, groups: Floats | None = None) -> None:
        self.seed = seed

    def fit(self, X: Floats, y: Floats) -> Self:
        self._line = fit_line(X, y)
        return self

    def predict(self, X: Floats) -> Floats:
        return self._line(X)


class PairwiseTerms:
    """Least squares in the columns, their squares and the products of pairs."""

    def __init__(self, seed: int = 0, groups: Floats | None = None) -> None:
        self.seed = seed

    def fit(self, X: Floats, y: Floats) -> Self:
        centred = X - X.mean(axis=0)
        follows = np.abs(centred.T @ (y - y.mean())) / np.maximum(
            np.linalg.norm(centred, axis=0), 1e-12
        )
        self._paired = np.sort(np.argsort(-follows, kind="stable")[:_MOST_PAIRED])
        self._line = fit_line(self._terms(X), y)
        return self

    def predict(self, X: Floats) -> Floats:
        return self._line(self._terms(X))

    def _terms(self, X: Floats) -> Floats:
        centred = X[:, self._paired] - 0.5
        first, second = np.triu_indices(len(self._paired))
        return np.column_stack([X, centred[:, first] * centred[:, second]])
