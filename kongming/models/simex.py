"""SIMEX: what coefficients would be if readings had no noise, by adding more of it.

Simulation and extrapolation (Cook and Stefanski 1994): noise of known variance is added to the
readings in steps, the coefficients' way is followed, and continued to where there would be none.
"""

from __future__ import annotations

from numbers import Integral, Real
from typing import Any, ClassVar

import numpy as np
from sklearn.utils import check_random_state
from sklearn.utils._param_validation import Interval

from kongming.dataset import Floats
from kongming.models.context import Context
from kongming.models.estimator import ContextRegressor
from kongming.models.penalty import choose_penalty
from kongming.models.shrinkage import centred_squares, shrunk

STEPS = (0.0, 0.5, 1.0, 1.5, 2.0)
"""Variance added, in multiples of the known one; at -1 there would be none left."""


class SimexRegressor(ContextRegressor):
    """Ridge regression extrapolated to readings without noise.

    The penalty is RIDGE's, chosen on the readings as they are. At each of ``STEPS``,
    ``repeats`` ridge regressions on readings with added noise are averaged; a parabola through
    the averages gives each coefficient at -1. Without known variances it is RIDGE. Learns
    ``coef_`` (p,), ``intercept_`` and ``penalty_``.
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "penalty": [Interval(Real, 0, None, closed="neither"), None],
        "repeats": [Interval(Integral, 1, None, closed="left")],
        "random_state": ["random_state"],
    }

    def __init__(
        self,
        *,
        penalty: float | None = None,
        repeats: int = 30,
        random_state: int | None = None,
    ) -> None:
        self.penalty = penalty
        self.repeats = repeats
        self.random_state = random_state

    def _fit_within(self, X: Floats, y: Floats, context: Context) -> None:
        chosen = self.penalty
        if chosen is None:
            chosen = choose_penalty(X, y, context.folds, _predictor)
        self.penalty_ = float(chosen)
        penalties = np.full(X.shape[1], self.penalty_ * centred_squares(X))
        deviation = np.sqrt(context.reading_variance)
        random = check_random_state(self.random_state)
        means = [shrunk(X, y, penalties)[0]]
        if np.any(deviation > 0.0):
            # The same draws at every step: the way along the steps is then smooth.
            draws = [random.normal(size=X.shape) * deviation for _ in range(self.repeats)]
            for step in STEPS[1:]:
                noisy = [shrunk(X + np.sqrt(step) * draw, y, penalties)[0] for draw in draws]
                means.append(np.mean(noisy, axis=0))
            self.coef_ = _extrapolated(np.array(means))
        else:
            self.coef_ = means[0]
        self.intercept_ = float(np.mean(y)) - float(X.mean(axis=0) @ self.coef_)

    def _predict(self, X: Floats) -> Floats:
        return np.asarray(X @ self.coef_ + self.intercept_, dtype=np.float64)

    def freeze(self) -> dict[str, Any]:
        return {"type": "linear", "coef": self.coef_.tolist(), "intercept": self.intercept_}


def _extrapolated(means: Floats) -> Floats:
    """(p,): at -1, the parabolas through the columns of ``means``, one row a step."""
    terms = np.vander(np.array(STEPS), 3)
    at = np.vander(np.array([-1.0]), 3)[0]
    return np.asarray(at @ np.linalg.pinv(terms) @ means, dtype=np.float64)


def _predictor(X: Floats, y: Floats, penalty: float) -> Any:
    coef, intercept = shrunk(X, y, np.full(X.shape[1], penalty * centred_squares(X)))
    return lambda rows: rows @ coef + intercept
