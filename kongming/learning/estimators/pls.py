"""PLS: a few mixtures of all columns, weighted by their covariance with the slowdown.

Columns of one resource rise together. A choice among them would be decided by noise; partial least
squares uses all of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from numbers import Integral
from typing import Any, ClassVar

import numpy as np
from scipy.optimize import nnls

from kongming.arrays import Floats
from kongming.learning.estimators.base import Regressor
from kongming.learning.estimators.parameters import Constraint, Interval


class PartialLeastSquaresRegressor(Regressor):
    """Partial least squares with weights >= 0, through the origin; learns ``coef_`` (p,).

    As PLS1 (Wold et al. 1984), but weights below 0 are set to 0, the columns are not deflated (so
    that later mixtures are mixtures of the columns as they are, and coefficients stay >= 0) and the
    weights of all mixtures are solved for again with each new one.
    """

    constraints: ClassVar[Mapping[str, Constraint]] = {
        "components": Interval(kind=Integral, low=1),
    }

    def __init__(self, *, components: int = 3) -> None:
        self.components = components

    def _fit(self, X: Floats, y: Floats) -> None:
        weights: list[Floats] = []
        self.coef_ = np.zeros(X.shape[1])
        for _ in range(self.components):
            toward = np.maximum(X.T @ (y - X @ self.coef_), 0.0)
            length = float(np.linalg.norm(toward))
            if length <= 0.0:
                break
            weights.append(toward / length)
            mixtures = np.stack(weights, axis=1)
            counts, _ = nnls(X @ mixtures, y)
            self.coef_ = np.asarray(mixtures @ counts, dtype=np.float64)

    def _predict(self, X: Floats) -> Floats:
        return np.asarray(X @ self.coef_, dtype=np.float64)

    def freeze(self) -> dict[str, Any]:
        return {"type": "linear", "coef": self.coef_.tolist(), "intercept": 0.0}

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        # The checks' data has an intercept and falling columns, which this model excludes.
        tags.regressor_tags.poor_score = True
        return tags
