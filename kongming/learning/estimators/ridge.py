"""RIDGE: regularised least squares whose penalty is chosen by leaving out resource families."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from numbers import Real
from typing import Any, ClassVar

import numpy as np

from kongming.arrays import Floats
from kongming.learning.estimators.base import ContextRegressor
from kongming.learning.estimators.context import Context
from kongming.learning.estimators.parameters import Constraint, Interval
from kongming.learning.estimators.penalty import choose_penalty


class RidgeRegressor(ContextRegressor):
    """Ridge regression; learns ``coef_`` (p,), ``intercept_`` and ``penalty_``.

    Columns are centred but not scaled: as logs over idle they share a unit, and a resource whose
    cost hardly moved in training should have less weight than one whose cost doubled. ``penalty``
    (a share of the summed squares of ``X``) None lets ``fit`` choose.
    """

    constraints: ClassVar[Mapping[str, Constraint]] = {
        "penalty": Interval(kind=Real, low=0, open_low=True, optional=True),
    }

    def __init__(self, *, penalty: float | None = None) -> None:
        self.penalty = penalty

    def _fit_within(self, X: Floats, y: Floats, context: Context) -> None:
        chosen = self.penalty
        if chosen is None:
            chosen = choose_penalty(X, y, context.folds, _path)
        self.penalty_ = float(chosen)
        ((self.coef_, self.intercept_),) = _path(X, y, (self.penalty_,))

    def _predict(self, X: Floats) -> Floats:
        return np.asarray(X @ self.coef_ + self.intercept_, dtype=np.float64)

    def freeze(self) -> dict[str, Any]:
        return {"type": "linear", "coef": self.coef_.tolist(), "intercept": self.intercept_}


def _path(X: Floats, y: Floats, penalties: Sequence[float]) -> Iterator[tuple[Floats, float]]:
    mean, center = X.mean(axis=0), float(np.mean(y))
    u, s, vt = np.linalg.svd(X - mean, full_matrices=False)
    squares, along = s**2, u.T @ (y - center)
    for penalty in penalties:
        weighted = squares + penalty * float(np.sum(squares))
        shrinkage = np.divide(s, weighted, out=np.zeros_like(s), where=weighted > 0.0)
        coef = np.asarray(vt.T @ (shrinkage * along), dtype=np.float64)
        yield coef, center - float(mean @ coef)
