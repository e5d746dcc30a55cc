"""HUBER: ridge regression that is robust to a few disturbed runs.

An unseen neighbour slows single runs by far more than the repeat noise of the others.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from numbers import Real
from statistics import NormalDist
from typing import Any, ClassVar

import numpy as np

from kongming.arrays import Floats
from kongming.learning.estimators.base import ContextRegressor
from kongming.learning.estimators.context import Context
from kongming.learning.estimators.parameters import Constraint, Interval
from kongming.learning.estimators.penalty import choose_penalty

_MEDIAN_TO_DEVIATION = 1.0 / NormalDist().inv_cdf(0.75)
"""Standard deviation of a normal distribution whose median absolute value is 1."""

_ROUNDS = 20
_ROUGH_ROUNDS = 3
"""Maximum number of iterations: enough to compare penalties, of which hundreds are fitted."""

_STEADY = 1e-4
"""The fit has converged when no prediction moves by more than this share of the residuals'
scale.
"""


class HuberRegressor(ContextRegressor):
    """Huber's loss with a ridge penalty, by reweighted least squares (Huber 1981, chapter 7).

    Residuals beyond ``threshold`` times their scale (the median absolute one) count linearly.
    ``penalty`` is as in RIDGE; None lets ``fit`` choose it. Learns ``coef_`` (p,), ``intercept_``
    and ``penalty_``.
    """

    constraints: ClassVar[Mapping[str, Constraint]] = {
        "penalty": Interval(kind=Real, low=0, open_low=True, optional=True),
        "threshold": Interval(kind=Real, low=0, open_low=True),
    }

    def __init__(self, *, penalty: float | None = None, threshold: float = 1.345) -> None:
        self.penalty = penalty
        self.threshold = threshold

    def _fit_within(self, X: Floats, y: Floats, context: Context) -> None:
        def path(
            X: Floats, y: Floats, penalties: Sequence[float]
        ) -> Iterator[tuple[Floats, float]]:
            coefs, intercepts = _solve(X, y, penalties, self.threshold, _ROUGH_ROUNDS)
            return zip(coefs, intercepts.tolist(), strict=True)

        chosen = self.penalty
        if chosen is None:
            chosen = choose_penalty(X, y, context.folds, path)
        self.penalty_ = float(chosen)
        coefs, intercepts = _solve(X, y, (self.penalty_,), self.threshold, _ROUNDS)
        self.coef_, self.intercept_ = coefs[0], float(intercepts[0])

    def _predict(self, X: Floats) -> Floats:
        return np.asarray(X @ self.coef_ + self.intercept_, dtype=np.float64)

    def freeze(self) -> dict[str, Any]:
        return {"type": "linear", "coef": self.coef_.tolist(), "intercept": self.intercept_}


def _solve(
    X: Floats, y: Floats, penalties: Sequence[float], threshold: float, rounds: int
) -> tuple[Floats, Floats]:
    """Return coefficients (k, p) and intercepts (k,) of k penalties, each reweighted separately."""
    mean, center = X.mean(axis=0), float(np.mean(y))
    centred, target = X - mean, y - center
    squares = float(np.sum(centred**2))
    # If nothing varied, any penalty gives 0.
    ridge = np.array(penalties) * squares if squares > 0.0 else np.ones(len(penalties))
    coefs, intercepts = _weighted(centred, target, ridge, np.ones((len(ridge), len(y))))
    predicted = coefs @ centred.T + intercepts[:, None]
    least = 1e-9 * float(np.std(y))
    active = np.arange(len(ridge))
    for _ in range(rounds):
        residuals = np.abs(target - predicted[active])
        scale = _MEDIAN_TO_DEVIATION * np.median(residuals, axis=1)
        # If more than half of the runs are fitted exactly, the scale of the residuals is 0.
        varied = scale > least
        active, scale, residuals = active[varied], scale[varied], residuals[varied]
        if not len(active):
            break
        weights = np.minimum(1.0, threshold * scale[:, None] / np.maximum(residuals, least))
        coefs[active], intercepts[active] = _weighted(centred, target, ridge[active], weights)
        before = predicted[active]
        predicted[active] = coefs[active] @ centred.T + intercepts[active, None]
        moved = np.max(np.abs(predicted[active] - before), axis=1)
        active = active[moved > _STEADY * scale]
    return coefs, intercepts + center - coefs @ mean


def _weighted(X: Floats, y: Floats, ridge: Floats, weights: Floats) -> tuple[Floats, Floats]:
    """Solve weighted ridge regressions: (k, p) and (k,) from ``ridge`` (k,) and ``weights`` (k,
    n).
    """
    total = weights.sum(axis=1)
    mean, center = weights @ X / total[:, None], weights @ y / total
    # The columns are centred, so these differences lose little precision.
    gram = (weights[:, :, None] * X).transpose(0, 2, 1) @ X
    gram -= total[:, None, None] * mean[:, :, None] * mean[:, None, :]
    diagonal = np.arange(X.shape[1])
    gram[:, diagonal, diagonal] += ridge[:, None]
    wanted = (weights * y) @ X - (total * center)[:, None] * mean
    coefs = np.linalg.solve(gram, wanted[:, :, None])[:, :, 0]
    return coefs, center - np.sum(coefs * mean, axis=1)
