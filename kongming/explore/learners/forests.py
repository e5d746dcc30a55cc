"""A forest of axis-parallel trees."""

from __future__ import annotations

from typing import Self

import numpy as np
from sklearn.ensemble import ExtraTreesRegressor

from kongming.arrays import Floats

_TREES = 60


class Forest:
    """Extremely randomised trees: their means are smoother than those of a random forest."""

    def __init__(
        self, seed: int = 0, groups: Floats | None = None, bootstrap: bool = False
    ) -> None:
        """``bootstrap``: each tree sees a resample, so that trees disagree at the runs as well."""
        self.seed, self.bootstrap = seed, bootstrap

    def fit(self, X: Floats, y: Floats) -> Self:
        self._forest = ExtraTreesRegressor(
            n_estimators=_TREES,
            random_state=self.seed % 2**32,
            bootstrap=self.bootstrap,
            oob_score=self.bootstrap,
        ).fit(X, y)
        return self

    @property
    def out_of_bag(self) -> Floats:
        """(n,) predictions of each run by the trees that did not see it, with ``bootstrap``."""
        return np.asarray(self._forest.oob_prediction_)

    def predict(self, X: Floats) -> Floats:
        return np.asarray(self._forest.predict(X))

    def members(self, X: Floats) -> Floats:
        """The (trees, n) predictions of each tree."""
        data = np.asarray(X, dtype=np.float32)
        return np.array([tree.predict(data) for tree in self._forest.estimators_])
