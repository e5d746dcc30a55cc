"""A committee of perceptrons with one hidden layer: what won at low sampling rates in the paper."""

from __future__ import annotations

import warnings
from typing import Self

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.neural_network import MLPRegressor

from kongming.arrays import Floats

_MEMBERS = 3
_HIDDEN = 10
_STEPS = 120


class PerceptronCommittee:
    """The mean of perceptrons that differ in their first weights (paper 004, section 3.4)."""

    def __init__(self, seed: int = 0, groups: Floats | None = None) -> None:
        self.seed = seed

    def fit(self, X: Floats, y: Floats) -> Self:
        self._mean, self._scale = float(y.mean()), float(y.std()) or 1.0
        self._members = []
        with warnings.catch_warnings():
            # It stops after so many steps on purpose.
            warnings.simplefilter("ignore", ConvergenceWarning)
            for member in range(_MEMBERS):
                perceptron = MLPRegressor(
                    hidden_layer_sizes=(_HIDDEN,),
                    activation="tanh",
                    solver="lbfgs",
                    alpha=1e-4,
                    max_iter=_STEPS,
                    random_state=(self.seed + member) % 2**32,
                )
                self._members.append(perceptron.fit(2.0 * X - 1.0, (y - self._mean) / self._scale))
        return self

    def predict(self, X: Floats) -> Floats:
        outputs = [member.predict(2.0 * X - 1.0) for member in self._members]
        return np.asarray(self._mean + self._scale * np.median(outputs, axis=0))

    def slopes(self, X: Floats) -> Floats:
        """(p, p): the mean over the points (n, p) and members of the outer product of a member's
        gradient with itself, in units of the target's deviation."""
        moment = np.zeros((X.shape[1], X.shape[1]))
        for member in self._members:
            (first, second), (offset, _) = member.coefs_, member.intercepts_
            hidden = np.tanh((2.0 * X - 1.0) @ first + offset)
            gradients = 2.0 * ((1.0 - hidden**2) * second[:, 0]) @ first.T
            moment += gradients.T @ gradients
        return np.asarray(moment / (len(self._members) * len(X)))
