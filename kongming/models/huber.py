"""HUBER: ridge regression that a few disturbed runs cannot pull about.

A neighbour that nobody saw makes single runs slower by far more than the rest repeat to.
"""

from __future__ import annotations

from numbers import Real
from statistics import NormalDist
from typing import Any, ClassVar

import numpy as np
from sklearn.utils._param_validation import Interval

from kongming.dataset import Floats
from kongming.models.context import Context
from kongming.models.estimator import ContextRegressor
from kongming.models.penalty import choose_penalty
from kongming.models.shrinkage import centred_squares, shrunk

_MEDIAN_TO_DEVIATION = 1.0 / NormalDist().inv_cdf(0.75)
"""Standard deviation of a normal law whose median absolute value is 1."""

_ROUNDS = 20
_ROUGH_ROUNDS = 3
"""A few rounds tell which penalty is better; hundreds of candidates are fitted for that."""

_STEADY = 1e-4
"""The fit is done when no prediction moves by more than this share of the residuals' scale."""


class HuberRegressor(ContextRegressor):
    """Huber's loss with a ridge penalty, by reweighted least squares (Huber 1981, chapter 7).

    Residuals beyond ``threshold`` times their scale (the median absolute one) count linearly.
    ``penalty`` is as in RIDGE, None lets ``fit`` choose it. Learns ``coef_`` (p,),
    ``intercept_`` and ``penalty_``.
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "penalty": [Interval(Real, 0, None, closed="neither"), None],
        "threshold": [Interval(Real, 0, None, closed="neither")],
    }

    def __init__(self, *, penalty: float | None = None, threshold: float = 1.345) -> None:
        self.penalty = penalty
        self.threshold = threshold

    def _fit_within(self, X: Floats, y: Floats, context: Context) -> None:
        def predictor(X: Floats, y: Floats, penalty: float) -> Any:
            coef, intercept = _solve(X, y, penalty, self.threshold, _ROUGH_ROUNDS)
            return lambda rows: rows @ coef + intercept

        chosen = self.penalty
        if chosen is None:
            chosen = choose_penalty(X, y, context.folds, predictor)
        self.penalty_ = float(chosen)
        self.coef_, self.intercept_ = _solve(X, y, self.penalty_, self.threshold, _ROUNDS)

    def _predict(self, X: Floats) -> Floats:
        return np.asarray(X @ self.coef_ + self.intercept_, dtype=np.float64)

    def freeze(self) -> dict[str, Any]:
        return {"type": "linear", "coef": self.coef_.tolist(), "intercept": self.intercept_}


def _solve(
    X: Floats, y: Floats, penalty: float, threshold: float, rounds: int
) -> tuple[Floats, float]:
    penalties = np.full(X.shape[1], penalty * centred_squares(X))
    coef, intercept = shrunk(X, y, penalties)
    predicted = X @ coef + intercept
    least = 1e-9 * float(np.std(y))
    for _ in range(rounds):
        residuals = np.abs(y - predicted)
        scale = _MEDIAN_TO_DEVIATION * float(np.median(residuals))
        if scale <= least:
            # More than half of the runs are met exactly: there is no scale to judge the rest by.
            break
        weights = np.minimum(1.0, threshold * scale / np.maximum(residuals, least))
        coef, intercept = shrunk(X, y, penalties, weights)
        before, predicted = predicted, X @ coef + intercept
        if float(np.max(np.abs(predicted - before))) <= _STEADY * scale:
            break
    return coef, intercept
