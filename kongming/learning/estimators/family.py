"""FAMILY: a regression on two numbers per resource: the mean and the worst slowdown of its columns.

A few dozen noisy runs cannot distinguish thirty columns that are near copies of each other. They
can distinguish eight resources.
"""

from __future__ import annotations

from collections.abc import Mapping
from numbers import Real
from typing import Any, ClassVar

import numpy as np

from kongming.arrays import Floats
from kongming.learning.estimators.context import Context
from kongming.learning.estimators.parameters import Boolean, Constraint, Interval
from kongming.learning.estimators.through_origin import ThroughOriginRegressor
from kongming.learning.predictors import worst

KINSHIP = 1e-3
"""Variance of the true differences between the logs of a family's columns (a deviation of 3 %). It
keeps a single column with little noise from dominating the mean."""


class FamilyRegressor(ThroughOriginRegressor):
    """A non-negative sum over resource families of the mean and the worst of their columns.

    A reading of known variance v counts in the mean in proportion to 1 / (v + ``KINSHIP``);
    ``worst`` False leaves the second term out. Through the origin, with a ridge penalty, like
    NNLOG. Learns ``groups_``, the columns of each family, ``shares_`` (families, p), the weight of
    each column in its mean, ``mean_coef_`` and ``worst_coef_`` (one for each family) and
    ``penalty_``.
    """

    constraints: ClassVar[Mapping[str, Constraint]] = {
        "penalty": Interval(kind=Real, low=0, open_low=True, optional=True),
        "worst": Boolean(),
    }

    def __init__(self, *, penalty: float | None = None, worst: bool = True) -> None:
        self.penalty = penalty
        self.worst = worst

    def _fit_within(self, X: Floats, y: Floats, context: Context) -> None:
        families = np.array(context.families)
        self.groups_ = [np.flatnonzero(families == name) for name in sorted(set(families))]
        self.shares_ = np.zeros((len(self.groups_), X.shape[1]))
        for share, members in zip(self.shares_, self.groups_, strict=True):
            precision = 1.0 / (context.reading_variance[members] + KINSHIP)
            share[members] = precision / precision.sum()
        terms = self._terms(X)
        coef = np.zeros(2 * len(self.groups_))
        coef[: terms.shape[1]] = self._coefficients(terms, y, context)
        self.mean_coef_, self.worst_coef_ = np.split(coef, 2)

    def _terms(self, X: Floats) -> Floats:
        """Return (n, k) or (n, 2 k): the means of the k families, then the worst of each."""
        means = X @ self.shares_.T
        if not self.worst:
            return np.asarray(means, dtype=np.float64)
        return np.column_stack([means, *(worst(X, members) for members in self.groups_)])

    def _predict(self, X: Floats) -> Floats:
        terms = self._terms(X)
        coef = np.concatenate([self.mean_coef_, self.worst_coef_])
        return np.asarray(terms @ coef[: terms.shape[1]], dtype=np.float64)

    def freeze(self) -> dict[str, Any]:
        linear = {
            "type": "linear",
            "coef": (self.mean_coef_ @ self.shares_).tolist(),
            "intercept": 0.0,
        }
        if not self.worst:
            return linear
        groups = {
            "type": "groups",
            "groups": [members.tolist() for members in self.groups_],
            "coef": self.worst_coef_.tolist(),
        }
        return {"type": "sum", "parts": [linear, groups]}
