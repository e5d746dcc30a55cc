"""Whether an environment lies outside the training environments, by a stated distance.

Per column, the training runs span a range of log seconds per operation. A reading beyond it by
more than a margin is outside: for columns that the model uses the margin is a quarter of the
range, or twice what the column differs by on the idle node, or 15 %, whichever is most, and at
most a factor of 1.9; for columns that it does not use it is that factor. So a surrogate twice
beyond its range is always outside. The distance is the largest excess in units of its margin.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from kongming.dataset import Floats

USED_SHARE = 0.05
"""A column counts as used when it can move the prediction by this share of what the column that
moves it most can."""

_FACTOR = math.log(1.9)
_LEAST = math.log(1.15)


@dataclass(frozen=True, slots=True)
class Distance:
    """How far outside: ``value`` above 1 is outside, by the positions in ``columns``, farthest
    first."""

    value: float
    columns: tuple[int, ...]

    @property
    def outside(self) -> bool:
        return self.value > 1.0


def distance(
    times: Floats, *, low: Floats, high: Floats, spread: Floats, weights: Floats
) -> Distance:
    """Distance of one environment, ``times`` (p,) in seconds per operation.

    ``low`` and ``high`` (p,) bound the training runs in seconds per operation, ``spread`` (p,)
    is the idle node's own difference in logs, ``weights`` (p,) what each column can move.
    """
    log_low, log_high, value = np.log(low), np.log(high), np.log(times)
    excess = np.maximum(np.maximum(value - log_high, log_low - value), 0.0)
    near = np.maximum(np.maximum(0.25 * (log_high - log_low), 2.0 * spread), _LEAST)
    used = weights >= USED_SHARE * np.max(weights, initial=0.0)
    # A model that uses no column at all knows nothing of the environment: all are alike to it.
    used &= weights > 0.0
    margins = np.where(used, np.minimum(near, _FACTOR), _FACTOR)
    relative = excess / margins
    outside = [int(j) for j in np.argsort(-relative, kind="stable") if relative[j] > 1.0]
    return Distance(float(np.max(relative, initial=0.0)), tuple(outside))
