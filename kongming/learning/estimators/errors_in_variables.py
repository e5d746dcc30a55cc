"""NNEIV: a regression that takes the known noise of each column's readings into account.

A reading of ``memory.random.LLChalf`` may repeat to within a factor of two, one of ``compute.int``
to within a thousandth. Coefficients that are fitted to noisy columns are too small for the true
slowdowns (attenuation), and they carry training noise into every prediction: the noisier the
column, the more. See Fuller 1987, chapter 2.
"""

from __future__ import annotations

from collections.abc import Mapping
from numbers import Real
from typing import ClassVar

from kongming.arrays import Floats
from kongming.learning.estimators.context import Context
from kongming.learning.estimators.parameters import Constraint, Interval
from kongming.learning.estimators.through_origin import LinearThroughOriginRegressor


class NonNegativeVarianceRegressor(LinearThroughOriginRegressor):
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
        self.coef_ = self._coefficients(X, y, context, self.share * context.reading_variance)
