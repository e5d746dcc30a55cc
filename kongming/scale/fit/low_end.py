"""Below the smallest machine count that was run a job may exceed the memory of its machines.

Nothing in the runs tells: the time is then longer by a factor that is anything from a little to
``HIGHEST``. A prediction there is a mixture of both cases, so its interval reaches farther up than
down, and the chance of ending in time is less. The same holds between two machine counts of which
the smaller did exceed its memory; there the factor is known.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from scipy.special import stdtr

from kongming.arrays import Floats

CHANCE = 0.25
"""Probability that memory ends between the smallest machine count and half of it."""

HIGHEST = 25.0
"""Fewer machines than memory needs take 3 to 25 times as long; in a mixture any factor up to that
is as likely as another, in logs."""

JUMP = 1.5
"""Minimum ratio of the work (machines x time) on fewer machines that tells of their memory."""

_FACTORS = (np.arange(20) + 0.5) / 20 * np.log(HIGHEST)
_STEPS = 25


def chance_of_cliff(below: float) -> float:
    """Return the probability of a cliff at a distance (in logs) below the smallest machine count
    and above the largest load that were run."""
    return CHANCE * float(np.clip(below / np.log(2.0), 0.0, 1.0))


@dataclass(frozen=True, eq=False, slots=True)
class Cliff:
    """The ``chance`` that memory does not suffice at a question, and the equally likely ``factors``
    (logs) of the time then; ``where`` memory may end, as a word before the machines that were
    run."""

    chance: float
    factors: Floats = field(default_factory=lambda: _FACTORS)
    where: str = "below"


def between(at: float, low: float, high: float, factor: float) -> Cliff:
    """Return the cliff at a machine count between two that were run, where the time would be
    ``factor`` times as long with the work of the lower: memory ends anywhere between them."""
    if factor < JUMP:
        return Cliff(0.0)
    chance = float(np.log(high / at) / np.log(high / low))
    return Cliff(chance, np.log([factor]), "between")


def probability(deviation: float, freedom: float, log_ratio: float, cliff: Cliff) -> float:
    """Probability that the time over its median without a cliff is at most exp(``log_ratio``)."""
    return float(_mixed(np.array([log_ratio]), deviation, freedom, cliff)[0])


def upper(deviation: float, freedom: float, level: float, cliff: Cliff, usual: float) -> float:
    """Return the log of the upper end over the median without a cliff; ``usual`` is what it is
    without a cliff."""
    most = max(float(np.log(HIGHEST)), float(cliff.factors.max()))
    logs = usual + np.linspace(0.0, most, _STEPS)
    if len(cliff.factors) == 1:
        # The probability has a step there.
        logs = np.union1d(logs, cliff.factors + deviation * np.linspace(-4.0, 4.0, _STEPS))
    return float(np.interp(0.5 + level / 2, _mixed(logs, deviation, freedom, cliff), logs))


def _mixed(logs: Floats, deviation: float, freedom: float, cliff: Cliff) -> Floats:
    chance = cliff.chance
    usual = stdtr(freedom, logs / deviation)
    beyond = stdtr(freedom, (logs[:, None] - cliff.factors) / deviation).mean(axis=1)
    return np.asarray((1.0 - chance) * usual + chance * beyond, dtype=np.float64)
