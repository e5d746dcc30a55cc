"""GBM: gradient boosted regression trees by lightgbm (paper, Table II)."""

from __future__ import annotations

from collections.abc import Mapping
from numbers import Integral, Real
from typing import Any, ClassVar

import lightgbm
import numpy as np
from sklearn.utils import check_random_state

from kongming.arrays import Floats
from kongming.learning.estimators.base import Regressor
from kongming.learning.estimators.parameters import Constraint, Interval, RandomState


class BoostedRegressor(Regressor):
    """Boosted small trees with parameters for a few dozen runs; learns ``booster_``.

    One thread and row-wise histograms in a fixed order: the same data and ``random_state`` give
    the same trees.
    """

    constraints: ClassVar[Mapping[str, Constraint]] = {
        "n_trees": Interval(kind=Integral, low=1),
        "learning_rate": Interval(kind=Real, low=0, high=1, open_low=True),
        "leaves": Interval(kind=Integral, low=2),
        "min_samples_leaf": Interval(kind=Integral, low=1),
        "random_state": RandomState(),
    }

    def __init__(
        self,
        *,
        n_trees: int = 100,
        learning_rate: float = 0.1,
        leaves: int = 6,
        min_samples_leaf: int = 3,
        random_state: int | None = None,
    ) -> None:
        self.n_trees = n_trees
        self.learning_rate = learning_rate
        self.leaves = leaves
        self.min_samples_leaf = min_samples_leaf
        self.random_state = random_state

    def _fit(self, X: Floats, y: Floats) -> None:
        parameters = {
            "objective": "regression",
            "learning_rate": self.learning_rate,
            "num_leaves": self.leaves,
            "min_data_in_leaf": self.min_samples_leaf,
            "min_data_in_bin": 1,
            "min_sum_hessian_in_leaf": 0.0,
            "seed": int(check_random_state(self.random_state).randint(2**31 - 1)),
            "deterministic": True,
            "force_row_wise": True,
            "num_threads": 1,
            "verbosity": -1,
        }
        data = lightgbm.Dataset(X, label=y, params=parameters)
        self.booster_ = lightgbm.train(parameters, data, num_boost_round=self.n_trees)

    def _predict(self, X: Floats) -> Floats:
        return np.asarray(self.booster_.predict(X, num_threads=1), dtype=np.float64)

    def freeze(self) -> dict[str, Any]:
        dumped = self.booster_.dump_model()
        return {
            "type": "trees",
            "single_precision": False,
            "trees": [_arrays(tree["tree_structure"]) for tree in dumped["tree_info"]],
        }


def _arrays(root: dict[str, Any]) -> dict[str, list[Any]]:
    """Return the nested nodes as parallel lists, children after their parent."""
    arrays: dict[str, list[Any]] = {
        "feature": [],
        "threshold": [],
        "left": [],
        "right": [],
        "value": [],
    }
    pending: list[tuple[dict[str, Any], int, str]] = [(root, -1, "")]
    while pending:
        node, parent, side = pending.pop(0)
        index = len(arrays["value"])
        if side:
            arrays[side][parent] = index
        leaf = "split_feature" not in node
        arrays["feature"].append(0 if leaf else int(node["split_feature"]))
        arrays["threshold"].append(0.0 if leaf else float(node["threshold"]))
        arrays["left"].append(-1)
        arrays["right"].append(-1)
        arrays["value"].append(float(node["leaf_value"]) if leaf else 0.0)
        if not leaf:
            pending.append((node["left_child"], index, "left"))
            pending.append((node["right_child"], index, "right"))
    return arrays
