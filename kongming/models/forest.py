"""FOREST: a mean over many trees that are split at random."""

from __future__ import annotations

from numbers import Integral, Real
from typing import Any, ClassVar

import numpy as np
from sklearn.ensemble import ExtraTreesRegressor
from sklearn.utils._param_validation import Interval

from kongming.dataset import Floats
from kongming.models.cart import TreeRegressor
from kongming.models.estimator import Regressor


class ForestRegressor(Regressor):
    """Extremely randomised trees (Geurts et al. 2006), kept small; learns ``forest_``.

    Thresholds are drawn, not searched for: on a few dozen noisy runs a searched one fits the
    noise. ``columns_share`` of the columns are tried at each node. The same data and
    ``random_state`` give the same trees.
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "n_trees": [Interval(Integral, 1, None, closed="left")],
        "min_samples_leaf": [Interval(Integral, 1, None, closed="left")],
        "depth": [Interval(Integral, 1, None, closed="left")],
        "columns_share": [Interval(Real, 0, 1, closed="right")],
        "random_state": ["random_state"],
    }

    def __init__(
        self,
        *,
        n_trees: int = 100,
        min_samples_leaf: int = 2,
        depth: int = 7,
        columns_share: float = 1.0,
        random_state: int | None = None,
    ) -> None:
        self.n_trees = n_trees
        self.min_samples_leaf = min_samples_leaf
        self.depth = depth
        self.columns_share = columns_share
        self.random_state = random_state

    def _fit(self, X: Floats, y: Floats) -> None:
        self.forest_ = ExtraTreesRegressor(
            n_estimators=self.n_trees,
            min_samples_leaf=self.min_samples_leaf,
            max_depth=self.depth,
            max_features=float(self.columns_share),
            random_state=self.random_state,
        ).fit(X, y)

    def _predict(self, X: Floats) -> Floats:
        return np.asarray(self.forest_.predict(X), dtype=np.float64)

    def freeze(self) -> dict[str, Any]:
        trees = [_frozen(member) for member in self.forest_.estimators_]
        for tree in trees:
            tree["value"] = [value / len(trees) for value in tree["value"]]
        return {"type": "trees", "single_precision": True, "trees": trees}


def _frozen(member: Any) -> dict[str, list[Any]]:
    """The arrays of one of the forest's trees, as CART freezes its own."""
    alone = TreeRegressor()
    alone.tree_ = member
    tree: dict[str, list[Any]] = alone.freeze()["trees"][0]
    return tree
