"""RIDGE: regularised least squares whose penalty is chosen by leaving out resource families."""

from __future__ import annotations

from numbers import Real
from typing import Any, ClassVar

import numpy as np
from sklearn.utils._param_validation import Interval

from kongming.dataset import Floats
from kongming.models.context import Context
from kongming.models.estimator import ContextRegressor
from kongming.models.penalty import choose_penalty


class RidgeRegressor(ContextRegressor):
    """Ridge regression; learns ``coef_`` (p,), ``intercept_`` and ``penalty_``.

    Columns are centred but not scaled: as logs over idle they share a unit, and a resource
    whose cost hardly moved in training should not be trusted as one whose cost doubled.
    ``penalty`` (a share of the summed squares of ``X``) None lets ``fit`` choose.
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "penalty": [Interval(Real, 0, None, closed="neither"), None],
    }

    def __init__(self, *, penalty: float | None = None) -> None:
        self.penalty = penalty

    def _fit_within(self, X: Floats, y: Floats, context: Context) -> None:
        chosen = self.penalty
        if chosen is None:
            chosen = choose_penalty(X, y, context.folds, _predictor)
        self.penalty_ = float(chosen)
        self.coef_, self.intercept_ = _solve(X, y, self.penalty_)

    def _predict(self, X: Floats) -> Floats:
        return np.asarray(X @ self.coef_ + self.intercept_, dtype=np.float64)

    def freeze(self) -> dict[str, Any]:
        return {"type": "linear", "coef": self.coef_.tolist(), "intercept": self.intercept_}


def _solve(X: Floats, y: Floats, penalty: float) -> tuple[Floats, float]:
    mean, center = X.mean(axis=0), float(np.mean(y))
    centred = X - mean
    u, s, vt = np.linalg.svd(centred, full_matrices=False)
    weight = penalty * float(np.sum(s**2))
    shrunk = np.divide(s, s**2 + weight, out=np.zeros_like(s), where=s**2 + weight > 0.0)
    coef = vt.T @ (shrunk * (u.T @ (y - center)))
    return np.asarray(coef, dtype=np.float64), center - float(mean @ coef)


def _predictor(X: Floats, y: Floats, penalty: float) -> Any:
    coef, intercept = _solve(X, y, penalty)
    return lambda rows: rows @ coef + intercept
