"""RIDGE.EIV and NNEIV: the noise of readings is known, and taken into account by name.

A reading of ``memory.random.LLChalf`` may repeat to within a factor of two, one of ``compute.int``
to within a thousandth. Fitted to noisy columns, coefficients are too small for the true slowdowns
(attenuation), and what they carry of the training noise comes back in every prediction, the more
the noisier the column. See Fuller 1987, chapter 2.
"""

from __future__ import annotations

from numbers import Real
from typing import Any, ClassVar

import numpy as np
from sklearn.utils._param_validation import Interval

from kongming.dataset import Floats
from kongming.models.context import Context
from kongming.models.estimator import ContextRegressor
from kongming.models.penalty import choose_penalty
from kongming.models.shrinkage import (
    centred_squares,
    shrunk_nonnegative,
    symmetric_solution,
)


class VarianceRidgeRegressor(ContextRegressor):
    """Ridge regression whose columns are also penalised by the known variance of a reading.

    To the RIDGE penalty of every column, n ``share`` times the variance of its reading is added.
    A ``share`` of 1 shrinks what noisy columns say, as training on readings of twice the variance
    would; -1 corrects for attenuation, which fits when predictions are made from readings that
    are much less noisy; 0, or unknown variances, is RIDGE. However much is taken away, the
    squares of no direction fall below the RIDGE penalty. Learns ``coef_`` (p,), ``intercept_``
    and ``penalty_``.
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "penalty": [Interval(Real, 0, None, closed="neither"), None],
        "share": [Interval(Real, -1, None, closed="left")],
    }

    def __init__(self, *, penalty: float | None = None, share: float = 1.0) -> None:
        self.penalty = penalty
        self.share = share

    def _fit_within(self, X: Floats, y: Floats, context: Context) -> None:
        added = self.share * context.reading_variance

        def predictor(X: Floats, y: Floats, penalty: float) -> Any:
            coef, intercept = _solve(X, y, penalty, added)
            return lambda rows: rows @ coef + intercept

        chosen = self.penalty
        if chosen is None:
            chosen = choose_penalty(X, y, context.folds, predictor)
        self.penalty_ = float(chosen)
        self.coef_, self.intercept_ = _solve(X, y, self.penalty_, added)

    def _predict(self, X: Floats) -> Floats:
        return np.asarray(X @ self.coef_ + self.intercept_, dtype=np.float64)

    def freeze(self) -> dict[str, Any]:
        return {"type": "linear", "coef": self.coef_.tolist(), "intercept": self.intercept_}


class NonNegativeVarianceRegressor(ContextRegressor):
    """NNLOG with the same penalty: coefficients >= 0, through the idle environment.

    Learns ``coef_`` (p,) and ``penalty_``; ``share`` as in ``VarianceRidgeRegressor``, but not
    below 0.
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "penalty": [Interval(Real, 0, None, closed="neither"), None],
        "share": [Interval(Real, 0, None, closed="left")],
    }

    def __init__(self, *, penalty: float | None = None, share: float = 1.0) -> None:
        self.penalty = penalty
        self.share = share

    def _fit_within(self, X: Floats, y: Floats, context: Context) -> None:
        added = self.share * context.reading_variance

        def solve(X: Floats, y: Floats, penalty: float) -> Floats:
            return shrunk_nonnegative(X, y, penalty * float(np.sum(X**2)) + len(y) * added)

        def predictor(X: Floats, y: Floats, penalty: float) -> Any:
            coef = solve(X, y, penalty)
            return lambda rows: rows @ coef

        chosen = self.penalty
        if chosen is None:
            chosen = choose_penalty(X, y, context.folds, predictor)
        self.penalty_ = float(chosen)
        self.coef_ = solve(X, y, self.penalty_)

    def _predict(self, X: Floats) -> Floats:
        return np.asarray(X @ self.coef_, dtype=np.float64)

    def freeze(self) -> dict[str, Any]:
        return {"type": "linear", "coef": self.coef_.tolist(), "intercept": 0.0}

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        # The checks' data has an intercept and falling columns, which this model excludes.
        tags.regressor_tags.poor_score = True
        return tags


def _solve(X: Floats, y: Floats, penalty: float, added: Floats) -> tuple[Floats, float]:
    mean, center = X.mean(axis=0), float(np.mean(y))
    centred = X - mean
    weight = penalty * centred_squares(X)
    gram = centred.T @ centred + np.diag(len(y) * added)
    if np.any(added < 0.0):
        # What is taken away may exceed what is there, and no direction has negative squares.
        values, directions = np.linalg.eigh(gram)
        gram = (directions * np.maximum(values, 0.0)) @ directions.T
    coef = symmetric_solution(gram + weight * np.eye(len(gram)), centred.T @ (y - center))
    return coef, center - float(mean @ coef)
