"""NNLS and NNLOG: a slower resource never makes a program faster.

An application is a sum of operations, each of which costs what its surrogate costs (paper,
section II), so its slowdown grows with every surrogate's. Through the idle environment, with no
intercept, so that it says 1 where nothing is slowed.
"""

from __future__ import annotations

from numbers import Real
from typing import Any, ClassVar

import numpy as np
from scipy.optimize import nnls
from sklearn.utils._param_validation import Interval

from kongming.dataset import Floats
from kongming.models.context import Context
from kongming.models.estimator import ContextRegressor
from kongming.models.penalty import choose_penalty


class NonNegativeRegressor(ContextRegressor):
    """Least squares through the origin with coefficients >= 0 and a ridge penalty.

    Learns ``coef_`` (p,) and ``penalty_``. ``penalty`` (a share of the summed squares of ``X``)
    None lets ``fit`` choose. With ``relative``, ``y`` is a slowdown less one and each run weighs
    1 / (1 + y), so that errors relative to the runtime are what is minimised.
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "penalty": [Interval(Real, 0, None, closed="neither"), None],
        "relative": ["boolean"],
    }

    def __init__(self, *, penalty: float | None = None, relative: bool = False) -> None:
        self.penalty = penalty
        self.relative = relative

    def _fit_within(self, X: Floats, y: Floats, context: Context) -> None:
        if self.relative:
            # A run cannot take less than no time: y is above -1, by far.
            weights = 1.0 / np.maximum(1.0 + y, 0.1)
            X, y = X * weights[:, None], y * weights
        chosen = self.penalty
        if chosen is None:
            chosen = choose_penalty(X, y, context.folds, _predictor)
        self.penalty_ = float(chosen)
        self.coef_ = _solve(X, y, self.penalty_)

    def _predict(self, X: Floats) -> Floats:
        return np.asarray(X @ self.coef_, dtype=np.float64)

    def freeze(self) -> dict[str, Any]:
        return {"type": "linear", "coef": self.coef_.tolist(), "intercept": 0.0}

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        # The checks' data has an intercept and falling columns, which this model excludes.
        tags.regressor_tags.poor_score = True
        return tags


def _solve(X: Floats, y: Floats, penalty: float) -> Floats:
    p = X.shape[1]
    weight = penalty * float(np.sum(X**2))
    if weight <= 0.0:
        return np.zeros(p)
    # The normal equations' Cholesky factor stands for the augmented rows, and is only (p, p).
    factor = np.linalg.cholesky(X.T @ X + weight * np.eye(p))
    coef, _ = nnls(factor.T, np.linalg.solve(factor, X.T @ y))
    return np.asarray(coef, dtype=np.float64)


def _predictor(X: Floats, y: Floats, penalty: float) -> Any:
    coef = _solve(X, y, penalty)
    return lambda rows: rows @ coef
