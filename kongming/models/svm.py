"""SVM: support vector regression with a radial kernel (paper, Table II)."""

from __future__ import annotations

from numbers import Real
from typing import Any, ClassVar

import numpy as np
from sklearn.svm import SVR
from sklearn.utils._param_validation import Interval

from kongming.dataset import Floats
from kongming.models.estimator import Regressor, standardisation


class KernelRegressor(Regressor):
    """Epsilon-SVR on standardised columns and target; learns ``svr_`` and the scales.

    ``penalty`` is C and ``epsilon`` the width of the tube, both in units of the standardised
    target. The kernel's gamma is one over the number of columns.
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "penalty": [Interval(Real, 0, None, closed="neither")],
        "epsilon": [Interval(Real, 0, None, closed="left")],
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
