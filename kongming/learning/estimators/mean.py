"""MEAN: the mean runtime over the training runs, whatever the environment (the baseline)."""

from __future__ import annotations

from typing import Any

import numpy as np

from kongming.arrays import Floats
from kongming.learning.estimators.base import Regressor


class MeanRegressor(Regressor):
    """Predicts the mean of ``y`` (paper, Tables IV and V). Learns ``mean_``."""

    def _fit(self, X: Floats, y: Floats) -> None:
        self.mean_ = float(np.mean(y))

    def _predict(self, X: Floats) -> Floats:
        return np.full(len(X), self.mean_)

    def freeze(self) -> dict[str, Any]:
        return {"type": "constant", "value": self.mean_}

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.regressor_tags.poor_score = True
        return tags
