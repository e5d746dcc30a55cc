"""CART: one regression tree (paper, Table II)."""

from __future__ import annotations

from collections.abc import Mapping
from numbers import Integral, Real
from typing import Any, ClassVar

import numpy as np
from sklearn.tree import DecisionTreeRegressor

from kongming.arrays import Floats
from kongming.learning.estimators.base import Regressor
from kongming.learning.estimators.parameters import Constraint, Interval, RandomState


class TreeRegressor(Regressor):
    """A regression tree pruned by cost complexity; learns ``tree_``.

    ``complexity`` is the share of the root's squared error that a split must be worth, as in
    the classic implementation; ``random_state`` breaks ties between equal splits.
    """

    constraints: ClassVar[Mapping[str, Constraint]] = {
        "min_samples_leaf": Interval(kind=Integral, low=1),
        "complexity": Interval(kind=Real, low=0, high=1),
        "random_state": RandomState(),
    }

    def __init__(
        self,
        *,
        min_samples_leaf: int = 2,
        complexity: float = 0.01,
        random_state: int | None = None,
    ) -> None:
        self.min_samples_leaf = min_samples_leaf
        self.complexity = complexity
        self.random_state = random_state

    def _fit(self, X: Floats, y: Floats) -> None:
        self.tree_ = DecisionTreeRegressor(
            min_samples_leaf=self.min_samples_leaf,
            ccp_alpha=self.complexity * float(np.var(y)),
            random_state=self.random_state,
        ).fit(X, y)

    def _predict(self, X: Floats) -> Floats:
        return np.asarray(self.tree_.predict(X), dtype=np.float64)

    def freeze(self) -> dict[str, Any]:
        tree = self.tree_.tree_
        leaf = tree.children_left < 0
        return {
            "type": "trees",
            # The tree compares single-precision features with double-precision thresholds.
            "single_precision": True,
            "trees": [
                {
                    "feature": np.where(leaf, 0, tree.feature).tolist(),
                    "threshold": np.where(leaf, 0.0, tree.threshold).tolist(),
                    "left": np.where(leaf, -1, tree.children_left).tolist(),
                    "right": np.where(leaf, -1, tree.children_right).tolist(),
                    "value": tree.value[:, 0, 0].tolist(),
                }
            ],
        }
