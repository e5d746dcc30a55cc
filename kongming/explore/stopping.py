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

_OUTLIERS = 1.5
"""Above so many times the noise of the median deviation there are outliers among repeats."""


def enough(
    observed: Floats, held_out: Floats, shares: Floats, percent: float, noise: Floats | float = 0.0
) -> bool:
    """Return whether it is 95% certain that 90% of the space are predicted within ``percent``,
    judged by (n,) runs that were left out, each counted by the share of the space that it stands
    for.

    ``noise`` (n,) is the standard deviation of each observed value over it. What is observed misses
    a prediction by the noise and by the prediction's error, whose squares add up: a miss counts as
    within ``percent`` where the noise makes up for the rest.
    """
    scale = np.maximum(np.abs(observed), 1e-300)
    allowed = np.hypot(percent / 100.0, _REACH * np.asarray(noise))
    within = np.abs(observed - held_out) <= allowed * scale
    known = float(np.average(within, weights=shares))
    # Unequal shares are worth fewer runs.
    n = float(shares.sum() ** 2 / (shares**2).sum())
    hits = known * n
    if hits <= 0.0:
        return False
    return bool(beta.ppf(1.0 - _CONFIDENCE, hits, n - hits + 1.0) >= SHARE)


def least_noise(deviations: Floats, from_medians: Floats, repeats: int) -> float:
    """Return what the standard deviation of repeats is at the least, with 95% confidence, from
    their (m,) ``deviations`` from the means of their points; 0 from fewer than ``FEWEST_REPEATS``.

    It is at most ``_OUTLIERS`` times that of the median of those ``from_medians`` (m,) of their
    points: a single outlier, which moves a mean, must not excuse all other misses.
    """
    if repeats < FEWEST_REPEATS:
        return 0.0
    typical = float(np.median(np.abs(from_medians)) / norm.ppf(0.75))
    pooled = float(np.sqrt(np.mean(deviations**2)))
    least = np.sqrt(repeats / chi2.ppf(_CONFIDENCE, repeats))
    return float(min(pooled, _OUTLIERS * typical) * least)
