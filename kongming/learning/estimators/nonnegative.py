"""NNLS and NNLOG: a slower resource never makes a program faster.

An application is a sum of operations, each of which costs what its surrogate costs (paper,
section II), so its slowdown grows with every surrogate's. Through the idle environment, with no
intercept, so that it says 1 where nothing is slowed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from numbers import Real
from typing import Any, ClassVar

import numpy as np

from kongming.arrays import Floats
from kongming.learning.estimators.base import ContextRegressor
from kongming.learning.estimators.context import Context
from kongming.learning.estimators.parameters import Boolean, Constraint, Interval
from kongming.learning.estimators.penalty import choose_penalty
from kongming.learning.estimators.shrinkage import shrunk_nonnegative


class NonNegativeRegressor(ContextRegressor):
    """Least squares through the origin with coefficients >= 0 and a ridge penalty.

    Learns ``coef_`` (p,) and ``penalty_``. ``penalty`` (a share of the summed squares of ``X``)
    None lets ``fit`` choose. With ``relative``, ``y`` is a slowdown less one and each run weighs
    1 / (1 + y), so that errors relative to the runtime are what is minimised.
    """

    constraints: ClassVar[Mapping[str, Constraint]] = {
        "penalty": Interval(kind=Real, low=0, open_low=True, optional=True),
        "relative": Boolean(),
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
            chosen = choose_penalty(X, y, context.folds, _path)
        self.penalty_ = float(chosen)
        ((self.coef_, _),) = _path(X, y, (self.penalty_,))

    def _predict(self, X: Floats) -> Floats:
        return np.asarray(X @ self.coef_, dtype=np.float64)

    def freeze(self) -> dict[str, Any]:
        return {"type": "linear", "coef": self.coef_.tolist(), "intercept": 0.0}

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        # The checks' data has an intercept and falling columns, which this model excludes.
        tags.regressor_tags.poor_score = True
        return tags


def _path(X: Floats, y: Floats, penalties: Sequence[float]) -> Iterator[tuple[Floats, float]]:
    for coef in shrunk_nonnegative(
        X, y, [penalty * np.full(X.shape[1], np.sum(X**2)) for penalty in penalties]
    ):
        yield coef, 0.0
