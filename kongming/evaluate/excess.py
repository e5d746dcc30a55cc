"""Excess: the squared log error that a model leaves of SOLO's, with the noise taken off both.

    excess = (sum of squared errors - noise) / (SOLO's sum of squared errors - noise)

over log costs, pooled over cases; the noise is the sum of the variances of what was measured, each
case's own. 0 for the truth on average, 1 for SOLO, above 1 for a model that is worse than saying
that nothing slows anything. It is not a median: the pairs that are slowed carry it.

The interval is a two-way cluster bootstrap (Owen's pigeonhole bootstrap: The Annals of Applied
Statistics 1, 2007): victims and pressers are drawn separately, since all pairs of a program share
its error on either side. A sample in which SOLO's error is at the noise counts as infinite.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kongming.evaluate.cases import Cases, Floats

RESAMPLES = 2000
"""Bootstrap samples."""

INTERVAL = 0.95
"""Probability of an interval."""

TOO_NOISY = 0.3
"""Share of SOLO's squared error that may be noise; above it models cannot be compared."""


@dataclass(frozen=True, eq=False, slots=True)
class Excess:
    """``values`` (models,) and ``intervals`` (models, 2), NaN if undefined; ``noise_share`` is the
    part of SOLO's squared error that is noise."""

    values: Floats
    intervals: Floats
    noise_share: float

    @property
    def too_noisy(self) -> bool | None:
        """Return whether the noise is too large to compare models; None if it is not known."""
        return None if math.isnan(self.noise_share) else self.noise_share > TOO_NOISY


def excess(cases: Cases, variances: Floats, neighbour_of: NDArray[np.intp], *, seed: int) -> Excess:
    """Compute the excess of every model.

    Args:
        variances: (n,) of the log of each measured cost; NaN if not known.
        neighbour_of: (n,) the presser of each case (or its environment), numbered.
    """
    truth = np.log(cases.measured)
    solo = (np.log(cases.solo) - truth) ** 2
    squares = (np.log(cases.predicted) - truth) ** 2
    weights = _weights(cases.app_of, neighbour_of, seed)
    values, intervals = [], []
    for row in squares:
        known = np.isfinite(row) & np.isfinite(variances)
        above = np.stack([row[known] - variances[known], solo[known] - variances[known]])
        values.append(_quotient(*np.sum(above, axis=1)) if known.any() else math.nan)
        sums = above @ weights[:, known].T
        with np.errstate(divide="ignore", invalid="ignore"):
            samples = np.where(sums[1] > 0.0, sums[0] / sums[1], math.inf)
        intervals.append(_percentiles(samples) if known.any() else (math.nan, math.nan))
    known = np.isfinite(variances)
    total = float(np.sum(solo[known]))
    share = float(np.sum(variances[known])) / total if total > 0.0 else math.nan
    return Excess(np.array(values), np.array(intervals), share)


def _quotient(model: float, solo: float) -> float:
    return float(model / solo) if solo > 0.0 else math.nan


def _percentiles(samples: Floats) -> tuple[float, float]:
    tail = (1.0 - INTERVAL) / 2.0
    low, high = np.quantile(samples, [tail, 1.0 - tail], method="inverted_cdf")
    return float(low), float(high)


def _weights(victim_of: NDArray[np.intp], neighbour_of: NDArray[np.intp], seed: int) -> Floats:
    """(RESAMPLES, n): how often a case is drawn, with its victim and with its presser."""
    drawn = np.random.default_rng(seed)
    weights = np.ones((RESAMPLES, len(victim_of)))
    for groups in (victim_of, neighbour_of):
        names, place = np.unique(groups, return_inverse=True)
        n = len(names)
        if n:
            weights *= drawn.multinomial(n, np.full(n, 1.0 / n), RESAMPLES)[:, place]
    return weights
