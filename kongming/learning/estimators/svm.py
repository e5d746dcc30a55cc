"""SVM: support vector regression with a radial kernel (paper, Table II)."""

from __future__ import annotations

from collections.abc import Mapping
from numbers import Real
from typing import Any, ClassVar

import numpy as np
from sklearn.svm import SVR

from kongming.arrays import Floats
from kongming.learning.estimators.base import Regressor, standardisation
from kongming.learning.estimators.parameters import Constraint, Interval


class KernelRegressor(Regressor):
    """Epsilon-SVR on standardised columns and target; learns ``svr_`` and the scales.

    ``penalty`` is C and ``epsilon`` the width of the tube, both in units of the standardised
    target. The kernel's gamma is 1 / p.
    """

    constraints: ClassVar[Mapping[str, Constraint]] = {
        "penalty": Interval(kind=Real, low=0, open_low=True),
        "epsilon": Interval(kind=Real, low=0),
    }

    def __init__(self, *, penalty: float = 1.0, epsilon: float = 0.1) -> None:
        self.penalty = penalty
        self.epsilon = epsilon

    def _fit(self, X: Floats, y: Floats) -> None:
        self.mean_, self.scale_ = standardisation(X)
        self.center_ = float(np.mean(y))
        spread = float(np.std(y))
        self.spread_ = spread if spread > 0.0 else 1.0
        self.gamma_ = 1.0 / X.shape[1]
        self.svr_ = SVR(C=self.penalty, epsilon=self.epsilon, gamma=self.gamma_)
        self.svr_.fit((X - self.mean_) / self.scale_, (y - self.center_) / self.spread_)

    def _predict(self, X: Floats) -> Floats:
        predicted = self.svr_.predict((X - self.mean_) / self.scale_)
        return np.asarray(predicted * self.spread_ + self.center_, dtype=np.float64)

    def freeze(self) -> dict[str, Any]:
        return {
            "type": "kernel",
            "mean": self.mean_.tolist(),
            "scale": self.scale_.tolist(),
            "gamma": self.gamma_,
            "support": self.svr_.support_vectors_.tolist(),
            "dual": (self.svr_.dual_coef_[0] * self.spread_).tolist(),
            "intercept": float(self.svr_.intercept_[0]) * self.spread_ + self.center_,
        }
