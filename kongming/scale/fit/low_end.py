"""Below the smallest machine count that was run a job may exceed the memory of its machines.

Nothing in the runs tells: the time is then longer by a factor that is anything from a little to
``HIGHEST``. A prediction there is a mixture of both cases, so its interval reaches farther up than
down, and the chance of ending in time is less.
"""

from __future__ import annotations

import numpy as np
from scipy.special import stdtr

from kongming.arrays import Floats

CHANCE = 0.25
"""Probability that memory ends between the smallest machine count and half of it."""

HIGHEST = 25.0
"""Fewer machines than memory needs take 3 to 25 times as long; in a mixture any factor up to that
is as likely as another, in logs."""

_FACTORS = (np.arange(20) + 0.5) / 20 * np.log(HIGHEST)
_STEPS = 25


def chance_of_cliff(below: float) -> float:
    """Return the probability of a cliff at a distance (in logs) below the smallest machine count
    and above the largest load that were run."""
    return CHANCE * float(np.clip(below / np.log(2.0), 0.0, 1.0))


def probability(deviation: float, freedom: float, log_ratio: float, chance: float) -> float:
    """Probability that the time over its median without a cliff is at most exp(``log_ratio``)."""
    return float(_mixed(np.array([log_ratio]), deviation, freedom, chance)[0])


def upper(deviation: float, freedom: float, level: float, chance: float, usual: float) -> float:
    """Return the log of the upper end over the median without a cliff; ``usual`` is what it is
    without a cliff."""
    logs = usual + np.linspace(0.0, np.log(HIGHEST), _STEPS)
    return float(np.interp(0.5 + level / 2, _mixed(logs, deviation, freedom, chance), logs))


def _mixed(logs: Floats, deviation: float, freedom: float, chance: float) -> Floats:
    usual = stdtr(freedom, logs / deviation)
    beyond = stdtr(freedom, (logs[:, None] - _FACTORS) / deviation).mean(axis=1)
    return np.asarray((1.0 - chance) * usual + chance * beyond, dtype=np.float64)
