"""Rule for when enough is known: 90% of the space within so many per cent."""

from __future__ import annotations

import numpy as np
from scipy.stats import beta, chi2, norm

from kongming.arrays import Floats

SHARE = 0.9
_CONFIDENCE = 0.95
_REACH = float(norm.ppf(0.5 + SHARE / 2.0))
"""Standard deviations within which that share of normal errors lies."""

FEWEST_REPEATS = 3
"""Runs of points that had been run before, from which noise is known: of three the median tells an
outlier."""
_MOST_REPEATS = 1.0 / 3.0
"""Share of all runs up to which points are repeated for the rule's sake."""

_OUTLIERS = 1.5
"""Above so many times the noise of the median deviation there are outliers among repeats."""

_QUANTILES = (np.arange(20) + 0.5) / 20.0
"""Of what the noise may be, each as likely as the others."""


def certainty(
    observed: Floats, held_out: Floats, shares: Floats, percent: float, noise: Floats | float = 0.0
) -> float:
    """Return how certain it is that 90% of the space are predicted within ``percent``, judged by
    (n,) runs that were left out, each counted by the share of the space that it stands for.

    ``noise`` (n,) is the standard deviation of each observed value. What is observed misses a
    prediction by the noise and by the prediction's error, whose squares add up: a miss counts as
    within ``percent`` where the noise makes up for the rest.
    """
    allowed = np.hypot(percent / 100.0 * np.abs(observed), _REACH * np.asarray(noise))
    within = np.abs(observed - held_out) <= allowed
    known = float(np.average(within, weights=shares))
    # Unequal shares are worth fewer runs.
    n = float(shares.sum() ** 2 / (shares**2).sum())
    hits = known * n
    return float(beta.sf(SHARE, hits, n - hits + 1.0)) if hits > 0.0 else 0.0


def enough(certainties: Floats) -> bool:
    """Return whether it is 95% certain, over (k,) equally likely values of the noise."""
    return bool(np.mean(certainties) >= _CONFIDENCE)


def wanted_repeats(
    certainties: Floats, measured: int, awaited: int, repeated: int, runs: int
) -> int:
    """Return how many points may be run again, since repeats tell whether it is enough: a few
    while the noise is not known, and up to a share of all runs where it would be enough with more
    noise than is sure.

    Args:
        certainties: those of ``enough``.
        measured, awaited: runs of points that had been measured before, and those under way.
        repeated: runs of points that had been run before, whatever became of them.
        runs: all runs, with those under way.
    """
    most = int(_MOST_REPEATS * runs) - repeated
    if enough(certainties) or most <= 0:
        return 0
    if measured < FEWEST_REPEATS:
        return min(most, max(FEWEST_REPEATS - measured - awaited, 0))
    return most if np.max(certainties) >= _CONFIDENCE else 0


def plausible_noise(deviations: Floats, from_medians: Floats, repeats: int) -> Floats:
    """Return (k,) equally likely standard deviations of repeats, the least first, from their (m,)
    ``deviations`` from the means of their points; only 0 from fewer than ``FEWEST_REPEATS``.

    It counts as at most ``_OUTLIERS`` times that of the median of those ``from_medians`` (m,) of
    their points: a single outlier, which moves a mean, must not excuse all other misses.
    """
    if repeats < FEWEST_REPEATS:
        return np.zeros(1)
    typical = float(np.median(np.abs(from_medians)) / norm.ppf(0.75))
    pooled = float(np.sqrt(np.mean(deviations**2)))
    likely = np.sqrt(repeats / chi2.ppf(1.0 - _QUANTILES, repeats))
    return np.asarray(min(pooled, _OUTLIERS * typical) * likely)
