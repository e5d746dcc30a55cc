"""Bagged lines: each of many lines sees a resample of the runs and some of the columns."""

from __future__ import annotations

from typing import Self

import numpy as np

from kongming.arrays import Floats
from kongming.explore.tree.lines import fit_line

_MEMBERS = 20


class BaggedLines:
    """The mean of lines through bootstrap samples (paper 004, section 4.3.1)."""

    def __init__(self, seed: int = 0, groups: Floats | None = None) -> None:
        self.seed = seed

    def fit(self, X: Floats, y: Floats) -> Self:
        rng = np.random.default_rng(self.seed)
        lines = []
        for _ in range(_MEMBERS):
            rows = rng.integers(len(X), size=len(X))
            lines.append(fit_line(X[rows], y[rows]))
        self._intercept = float(np.mean([line.intercept for line in lines]))
        self._slopes = np.mean([line.slopes for line in lines], axis=0)
        return self

    def predict(self, X: Floats) -> Floats:
        return np.asarray(self._intercept + X @ self._slopes)
