"""Boosted trees."""

from __future__ import annotations

from typing import Self

import lightgbm
import numpy as np

from kongming.arrays import Floats

_ROUNDS = 150


class Boosting:
    """LightGBM on few samples: small leaves, on a standardised target."""

    def __init__(self, seed: int = 0, groups: Floats | None = None) -> None:
        self.seed = seed

    def fit(self, X: Floats, y: Floats) -> Self:
        self._mean, self._scale = float(y.mean()), float(y.std()) or 1.0
        parameters = {
            "objective": "regression",
            "learning_rate": 0.08,
            "num_leaves": 8,
            "min_data_in_leaf": max(3, min(20, len(X) // 20)),
            "min_data_in_bin": 1,
            "lambda_l2": 0.1,
            "seed": self.seed % 2**31,
            "deterministic": True,
            "force_col_wise": True,
            "num_threads": 1,
            "verbosity": -1,
        }
        data = lightgbm.Dataset(X, (y - self._mean) / self._scale, free_raw_data=False)
        self._model = lightgbm.train(parameters, data, num_boost_round=_ROUNDS)
        return self

    def predict(self, X: Floats) -> Floats:
        return np.asarray(
            self._mean + self._scale * np.asarray(self._model.predict(X, num_threads=1))
        )
