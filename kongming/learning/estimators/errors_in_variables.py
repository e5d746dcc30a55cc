"""NNEIV: the noise of each column's readings is known, and taken into account.

A reading of ``memory.random.LLChalf`` may repeat to within a factor of two, one of ``compute.int``
to within a thousandth. Fitted to noisy columns, coefficients are too small for the true slowdowns
(attenuation), and what they carry of the training noise comes back in every prediction, the more
the noisier the column. See Fuller 1987, chapter 2.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from numbers import Real
from typing import Any, ClassVar

import numpy as np

from kongming.arrays import Floats
from kongming.learning.estimators.base import ContextRegressor
from kongming.learning.estimators.context import Context
from kongming.learning.estimators.parameters import Constraint, Interval
from kongming.learning.estimators.penalty import choose_penalty
from kongming.learning.estimators.shrinkage import shrunk_nonnegative


class NonNegativeVarianceRegressor(ContextRegressor):
    """NNLOG whose columns are also penalised by the known variance of a reading.

    To the NNLOG penalty of every column, n ``share`` times the variance of its reading is added.
    A ``share`` of 1 shrinks the coefficients of noisy columns as training on readings of twice
    the variance would; 0, or unknown variances, is NNLOG. Learns ``coef_`` (p,), >= 0, and
    ``penalty_``.
    """

    constraints: ClassVar[Mapping[str, Constraint]] = {
        "penalty": Interval(kind=Real, low=0, open_low=True, optional=True),
        "share": Interval(kind=Real, low=0),
    }

    def __init__(self, *, penalty: float | None = None, share: float = 1.0) -> None:
        self.penalty = penalty
        self.share = share

    def _fit_within(self, X: Floats, y: Floats, context: Context) -> None:
        added = self.share * context.reading_variance

        def path(
            X: Floats, y: Floats, penalties: Sequence[float]
        ) -> Iterator[tuple[Floats, float]]:
            squares = float(np.sum(X**2))
            columns = [penalty * squares + len(y) * added for penalty in penalties]
            for coef in shrunk_nonnegative(X, y, columns):
                yield coef, 0.0

        chosen = self.penalty
        if chosen is None:
            chosen = choose_penalty(X, y, context.folds, path)
        self.penalty_ = float(chosen)
        ((self.coef_, _),) = path(X, y, (self.penalty_,))

    def _predict(self, X: Floats) -> Floats:
        return np.asarray(X @ self.coef_, dtype=np.float64)

    def freeze(self) -> dict[str, Any]:
        return {"type": "linear", "coef": self.coef_.tolist(), "intercept": 0.0}

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        # The checks' data has an intercept and falling columns, which this model excludes.
        tags.regressor_tags.poor_score = True
        return tags
