"""Measured and predicted costs as arrays with one column per case, and the prediction errors.

A case has one measured cost: an ordered pair, or a run in an environment.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

LEAST_PCT = 1e-3
"""An application's error or noise floor below this, in per cent, counts as this much in a
geometric mean: one exact zero would otherwise make the whole mean zero."""

_DECIMALS = 9
"""Log slowdowns that agree to this many decimals are ties: further digits are rounding errors."""


@dataclass(frozen=True, eq=False, slots=True)
class Cases:
    """``measured`` and ``solo`` are (n,) costs, ``predicted`` (models, n) with NaN for none.

    ``app_of`` (n,) are positions in ``apps``.
    """

    apps: tuple[str, ...]
    app_of: NDArray[np.intp]
    measured: Floats
    solo: Floats
    models: tuple[str, ...]
    predicted: Floats

    @property
    def errors(self) -> Floats:
        """(models, n): |predicted - measured| / measured in per cent."""
        return np.asarray(
            100.0 * np.abs(self.predicted - self.measured) / self.measured, dtype=np.float64
        )

    def of_app(self, position: int) -> NDArray[np.bool_]:
        """(n,) mask of the cases of one application."""
        return np.asarray(self.app_of == position, dtype=np.bool_)

    def quartiles(self) -> Floats:
        """(3, models, apps): quartiles of the error over an application's cases, NaN for none."""
        errors = self.errors
        quartiles = np.full((3, len(self.models), len(self.apps)), np.nan)
        for a in range(len(self.apps)):
            for m, row in enumerate(errors[:, self.of_app(a)]):
                finite = row[np.isfinite(row)]
                if len(finite):
                    quartiles[:, m, a] = np.quantile(finite, [0.25, 0.5, 0.75])
        return quartiles

    def mean_abs_log_pct(self) -> Floats:
        """(models,): 100 x mean of |ln(predicted / measured)| over all cases, NaN for none."""
        logs = np.abs(np.log(self.predicted / self.measured))
        return np.array([100.0 * mean(row) for row in logs])

    def spearman(self) -> Floats:
        """(models,): rank correlation of predicted and measured slowdown over an application's
        cases, mean over applications.

        An application counts where three cases are predicted and their measured slowdowns differ;
        a constant prediction ranks them by 0. NaN for none, or if all predictions are constant.
        """
        measured = np.log(self.measured / self.solo)
        predicted = np.log(self.predicted / self.solo)
        masks = [self.of_app(a) for a in range(len(self.apps))]
        ranks = []
        for row in predicted:
            known = [own & np.isfinite(row) for own in masks]
            rankable = [
                own for own in known if np.isfinite(rank_correlation(measured[own], measured[own]))
            ]
            values = np.array([rank_correlation(row[own], measured[own]) for own in rankable])
            defined = bool(np.isfinite(values).any())
            ranks.append(float(np.mean(np.nan_to_num(values))) if defined else float("nan"))
        return np.array(ranks)


def mean(values: Floats) -> float:
    """Mean of the finite values; NaN for none (without numpy's warning)."""
    known = values[np.isfinite(values)]
    return float(np.mean(known)) if len(known) else float("nan")


def median(values: Floats | Sequence[float]) -> float:
    """Median of the finite values; NaN for none."""
    array = np.asarray(values, dtype=np.float64)
    known = array[np.isfinite(array)]
    return float(np.median(known)) if len(known) else float("nan")


def floored(figures: Floats, floors: Floats) -> Floats:
    """(models, apps): figures that are not below the application's noise floor, where it is known:
    an error below the noise is luck."""
    return np.asarray(np.fmax(figures, floors) + 0.0 * figures, dtype=np.float64)


def geometric(per_app: Floats) -> float:
    """Geometric mean over applications of figures in per cent, each at least LEAST_PCT.

    Applications without a figure (NaN) are ignored; NaN if none has one.
    """
    known = per_app[np.isfinite(per_app)]
    if not len(known):
        return float("nan")
    return float(np.exp(np.mean(np.log(np.maximum(known, LEAST_PCT)))))


def rank_correlation(first: Floats, second: Floats) -> float:
    """Spearman's rank correlation, ties at their mean rank. NaN if it is undefined."""
    known = np.isfinite(first) & np.isfinite(second)
    a, b = _ranks(first[known]), _ranks(second[known])
    if len(a) < 3 or np.ptp(a) == 0.0 or np.ptp(b) == 0.0:
        return float("nan")
    return float(np.corrcoef(a, b)[0, 1])


def _ranks(values: Floats) -> Floats:
    _, place, counts = np.unique(
        np.round(values, _DECIMALS), return_inverse=True, return_counts=True
    )
    last = np.cumsum(counts)
    return np.asarray((last - (counts - 1) / 2.0)[place], dtype=np.float64)
