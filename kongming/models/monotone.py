"""MONO: gradient boosting that is monotone in every surrogate.

A slower resource never makes a program faster, since each of its operations costs at least as
much (paper, section II). Told so, boosting has far fewer ways to follow the noise of a few dozen
runs.
"""

from __future__ import annotations

from numbers import Integral, Real
from typing import Any, ClassVar

import lightgbm
from sklearn.utils import check_random_state
from sklearn.utils._param_validation import Interval

from kongming.dataset import Floats
from kongming.models.gbm import BoostedRegressor


class MonotoneRegressor(BoostedRegressor):
    """Boosted trees whose prediction never falls as a column rises; learns ``booster_``.

    ``columns_share`` of the columns are offered to each tree, so that of columns that rise
    together each gets its part instead of the first one all; ``shrinkage`` is added to the number
    of runs in a leaf when its value is computed. The same data and ``random_state`` give the same
    trees. Few steps, and small ones: under the constraint what is learned of noise can only raise
    predictions, and where several resources are slowed at once it adds up.
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **BoostedRegressor._parameter_constraints,
        "columns_share": [Interval(Real, 0, 1, closed="right")],
        "shrinkage": [Interval(Real, 0, None, closed="left")],
        "bins": [Interval(Integral, 2, None, closed="left")],
    }

    def __init__(
        self,
        *,
        n_trees: int = 100,
        learning_rate: float = 0.05,
        leaves: int = 3,
        min_samples_leaf: int = 2,
        columns_share: float = 0.2,
        shrinkage: float = 5.0,
        bins: int = 31,
        random_state: int | None = None,
    ) -> None:
        super().__init__(
            n_trees=n_trees,
            learning_rate=learning_rate,
            leaves=leaves,
            min_samples_leaf=min_samples_leaf,
            random_state=random_state,
        )
        self.columns_share = columns_share
        self.shrinkage = shrinkage
        self.bins = bins

    def _fit(self, X: Floats, y: Floats) -> None:
        parameters = {
            "objective": "regression",
            "monotone_constraints": [1] * X.shape[1],
            "learning_rate": self.learning_rate,
            "num_leaves": self.leaves,
            "min_data_in_leaf": self.min_samples_leaf,
            "min_data_in_bin": 1,
            "min_sum_hessian_in_leaf": 0.0,
            "max_bin": self.bins,
            "lambda_l2": self.shrinkage,
            "feature_fraction": self.columns_share,
            "seed": int(check_random_state(self.random_state).randint(2**31 - 1)),
            "deterministic": True,
            "force_row_wise": True,
            "num_threads": 1,
            "verbosity": -1,
        }
        data = lightgbm.Dataset(X, label=y, params=parameters)
        self.booster_ = lightgbm.train(parameters, data, num_boost_round=self.n_trees)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        # Few and small steps underfit the checks' data, which has no noise and ten columns.
        tags.regressor_tags.poor_score = True
        return tags
