"""The paper's own model: a tree of oblique splits, fitted afresh to all runs."""

from __future__ import annotations

from typing import Self

import numpy as np

from kongming.arrays import Floats
from kongming.explore.tree import ObliqueModelTree


class ModelTree:
    """``ObliqueModelTree``, its predictions kept near the values that were measured."""

    def __init__(self, seed: int = 0, groups: Floats | None = None) -> None:
        self.seed = seed

    def fit(self, X: Floats, y: Floats) -> Self:
        self.tree = ObliqueModelTree(criterion="residual", random_state=self.seed % 2**31)
        self.tree.fit(X, y)
        margin = 0.5 * float(np.ptp(y))
        self._bounds = float(y.min()) - margin, float(y.max()) + margin
        return self

    def predict(self, X: Floats) -> Floats:
        return np.asarray(np.clip(self.tree.predict(X), *self._bounds))
