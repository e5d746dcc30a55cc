"""NNLS and NNLOG: a slower resource never makes a program faster.

An application is a sum of operations, each of which costs what its surrogate costs (paper, section
II), so its slowdown grows with every surrogate's. There is no intercept, so that the prediction for
the idle environment is 1.
"""

from __future__ import annotations

from collections.abc import Mapping
from numbers import Real
from typing import ClassVar

import numpy as np

from kongming.arrays import Floats
from kongming.learning.estimators.context import Context
from kongming.learning.estimators.parameters import Boolean, Constraint, Interval
from kongming.learning.estimators.through_origin import LinearThroughOriginRegressor


class NonNegativeRegressor(LinearThroughOriginRegressor):
    """Least squares through the origin with coefficients >= 0 and a ridge penalty.

    Learns ``coef_`` (p,) and ``penalty_``. ``penalty`` (a share of the summed squares of ``X``)
    None lets ``fit`` choose. With ``relative``, ``y`` is a slowdown less one and each run weighs 1
    / (1 + y), so that errors relative to the runtime are minimised.
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
            # A runtime is above 0, so y is well above -1.
            weights = 1.0 / np.maximum(1.0 + y, 0.1)
            X, y = X * weights[:, None], y * weights
        self.coef_ = self._coefficients(X, y, context)
