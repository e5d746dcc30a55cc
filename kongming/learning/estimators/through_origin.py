"""Bases of models with non-negative coefficients, no intercept and a ridge penalty."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from kongming.arrays import Floats
from kongming.learning.estimators.base import ContextRegressor
from kongming.learning.estimators.context import Context
from kongming.learning.estimators.penalty import choose_penalty
from kongming.learning.estimators.shrinkage import shrunk_nonnegative


class ThroughOriginRegressor(ContextRegressor):
    """Base of regressors that call ``_coefficients`` in their ``_fit_within``.

    ``penalty`` is a share of the summed squares of the terms; None lets ``fit`` choose it by
    cross-validation. Subclasses assign it in ``__init__``. Learns ``penalty_``.
    """

    penalty: float | None

    def _coefficients(
        self, terms: Floats, y: Floats, context: Context, variance: Floats | float = 0.0
    ) -> Floats:
        """(p,): the coefficients, all >= 0, of the columns of ``terms`` (n, p) for ``y`` (n,).

        n times ``variance``, (p,) or one number for all columns, is added to the penalties.
        """
        added = np.zeros(terms.shape[1]) + variance

        def path(
            terms: Floats, y: Floats, penalties: Sequence[float]
        ) -> Iterator[tuple[Floats, float]]:
            return shrunk_path(terms, y, penalties, added)

        chosen = self.penalty
        if chosen is None:
            chosen = choose_penalty(terms, y, context.folds, path)
        self.penalty_ = float(chosen)
        ((coef, _),) = path(terms, y, (self.penalty_,))
        return coef

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        # The checks' data has an intercept and falling columns, which these models exclude.
        tags.regressor_tags.poor_score = True
        return tags


class LinearThroughOriginRegressor(ThroughOriginRegressor):
    """Base of regressors that are linear in the columns themselves: they learn ``coef_`` (p,)."""

    coef_: Floats

    def _predict(self, X: Floats) -> Floats:
        return np.asarray(X @ self.coef_, dtype=np.float64)

    def freeze(self) -> dict[str, Any]:
        return {"type": "linear", "coef": self.coef_.tolist(), "intercept": 0.0}


def shrunk_path(
    terms: Floats, y: Floats, penalties: Sequence[float], variance: Floats
) -> Iterator[tuple[Floats, float]]:
    """Yield the coefficients (p,) for each penalty, in order, and the intercept, which is 0.

    n times ``variance`` (p,) is added to each column's penalty.
    """
    squares = np.full(terms.shape[1], np.sum(terms**2))
    columns = [penalty * squares + len(y) * variance for penalty in penalties]
    for coef in shrunk_nonnegative(terms, y, columns):
        yield coef, 0.0
