"""Fitness of a selection of observations and surrogates: its error on rows that were left out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from sklearn import config_context

from kongming.arrays import Floats

__all__ = ["Flags", "LeftOut", "Predict", "Refits", "Scorer"]

Flags = NDArray[np.bool_]

Predict = Callable[[Floats], Floats]
"""(m, p) features to (m,) predictions."""


class Scorer(Protocol):
    """Compute the errors of many selections at once: ``observations`` (k, n) and ``columns`` (k, p)
    are the data that each is fitted to. The result is (k,), infinite for a selection that cannot be
    fitted."""

    def errors(self, observations: Flags, columns: Flags) -> Floats: ...


@dataclass(frozen=True, eq=False, slots=True)
class LeftOut:
    """Rows that are left out together, fold by fold, and the weight of an error on each.

    All left-out rows are scored, selected or not: leaving observations out of the training must
    not make the test easier.
    """

    tests: tuple[NDArray[np.intp], ...]
    costs: tuple[Floats, ...]

    @classmethod
    def of(cls, folds: Sequence[Sequence[int]], y: Floats, *, relative: bool) -> LeftOut:
        """Return the folds that leave rows to train on. Each row of ``y`` (n,) counts once, however
        often it is left out. Its error is absolute, or with ``relative`` divided by the measured
        value."""
        tests = [np.unique(np.array(fold, dtype=np.intp)) for fold in folds]
        tests = [test for test in tests if 0 < len(test) < len(y)]
        times = np.bincount(np.concatenate(tests), minlength=len(y)) if tests else np.ones(len(y))
        cost = 1.0 / np.maximum(times, 1)
        cost /= max(float(np.sum(times > 0)), 1.0)
        if relative:
            # Measured values are above 0; a caller's value that is not counts as a very small one.
            cost = cost / np.maximum(np.abs(y), 1e-3 * max(float(np.mean(np.abs(y))), 1e-300))
        return cls(tuple(tests), tuple(cost[test] for test in tests))

    def __bool__(self) -> bool:
        return bool(self.tests)


class Refits:
    """A scorer for any model: it fits each selection again in every fold.

    ``fit(X, y)`` gets the selected columns and the selected rows that are not left out, and
    returns a predictor for such columns. Without a column the mean is predicted.
    """

    def __init__(
        self, X: Floats, y: Floats, left_out: LeftOut, fit: Callable[[Floats, Floats], Predict]
    ) -> None:
        self._X = X
        self._y = y
        self._left_out = left_out
        self._fit = fit

    def errors(self, observations: Flags, columns: Flags) -> Floats:
        # The data was checked when the model was fitted; checks cost as much as small fits.
        with config_context(assume_finite=True, skip_parameter_validation=True):
            return np.array(
                [self._error(*pair) for pair in zip(observations, columns, strict=True)],
                dtype=np.float64,
            )

    def _error(self, observations: Flags, columns: Flags) -> float:
        if not self._left_out:
            return float("inf")
        X = self._X[:, columns]
        total = 0.0
        for test, cost in zip(self._left_out.tests, self._left_out.costs, strict=True):
            training = observations.copy()
            training[test] = False
            wanted = self._y[training]
            if not len(wanted):
                return float("inf")
            if X.shape[1]:
                predicted = self._fit(X[training], wanted)(X[test])
            else:
                predicted = np.full(len(test), np.mean(wanted))
            total += float(cost @ np.abs(predicted - self._y[test]))
        return total
