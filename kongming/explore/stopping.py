"""Rule for when enough is known: 90% of the space within so many per cent."""

from __future__ import annotations

import numpy as np
from scipy.stats import beta

from kongming.arrays import Floats

SHARE = 0.9
_CONFIDENCE = 0.95


def enough(observed: Floats, held_out: Floats, shares: Floats, percent: float) -> bool:
    """Return whether it is 95% certain that 90% of the space are predicted within ``percent``,
    judged by (n,) runs that were left out, each counted by the share of the space that it stands
    for."""
    scale = np.maximum(np.abs(observed), 1e-300)
    within = np.abs(observed - held_out) <= percent / 100.0 * scale
    known = float(np.average(within, weights=shares))
    # Unequal shares are worth fewer runs.
    n = float(shares.sum() ** 2 / (shares**2).sum())
    hits = known * n
    if hits <= 0.0:
        return False
    return bool(beta.ppf(1.0 - _CONFIDENCE, hits, n - hits + 1.0) >= SHARE)
