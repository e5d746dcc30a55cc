"""LM: ordinary least squares (paper, Table II)."""

from __future__ import annotations

from typing import Any

import numpy as np

from kongming.arrays import Floats
from kongming.learning.estimators.base import Regressor, standardisation


class LinearRegressor(Regressor):
    """Ordinary least squares with an intercept; learns ``coef_`` (p,) and ``intercept_``.

    Columns are standardised before they are solved for, since seconds per operation span nine
    orders of magnitude. With more runs than columns this changes no prediction; with fewer, the
    solution of least norm in standardised columns is taken.
    """

    def _fit(self, X: Floats, y: Floats) -> None:
        mean, scale = standardisation(X)
        center = float(np.mean(y))
        solution, *_ = np.linalg.lstsq((X - mean) / scale, y - center, rcond=1e-10)
        self.coef_ = solution / scale
        self.intercept_ = center - float(mean @ self.coef_)

    def _predict(self, X: Floats) -> Floats:
        return np.asarray(X @ self.coef_ + self.intercept_, dtype=np.float64)

    def freeze(self) -> dict[str, Any]:
        return {"type": "linear", "coef": self.coef_.tolist(), "intercept": self.intercept_}
