"""How many repetitions a stated precision takes: CONFIRM (Maricq et al., OSDI 2018).

Subsets of s readings are drawn without replacement, the non-parametric interval of the median of
each is taken, and the lower and the upper bounds are averaged. The smallest s whose mean bounds
are within r of the median of all readings is the answer. Here the mean is over *all* subsets of
that size, in closed form: a bound is an order statistic, whose expectation over subsets follows
from the hypergeometric distribution. So there is no seed, and the order of readings is no matter.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import ceil, sqrt

import numpy as np
from scipy import special

from kongming.audit.intervals import rank_bounds
from kongming.dataset import Floats

__all__ = ["FEWEST", "Repetitions", "mean_bounds", "repetitions"]

FEWEST = 10
"""The smallest subset that is looked at, as in CONFIRM."""


@dataclass(frozen=True, slots=True)
class Repetitions:
    """``needed`` independent repetitions; with ``extrapolated`` that is more than were measured,
    and a guess by the square-root law."""

    needed: int
    extrapolated: bool


def mean_bounds(ascending: Floats, size: int, confidence: float) -> tuple[float, float] | None:
    """Mean lower and upper bound of the median's interval over all subsets of ``size``."""
    found = rank_bounds(size, 0.5, confidence)
    if found is None or size > len(ascending):
        return None
    return _expected(ascending, size, found[0]), _expected(ascending, size, found[1])


def repetitions(
    ascending: Floats, precision: float, confidence: float = 0.95
) -> Repetitions | None:
    """For a precision such as 0.01; None with fewer than ``FEWEST`` sorted readings, or a median
    that is not above 0."""
    n = len(ascending)
    median = float(np.median(ascending)) if n else 0.0
    if n < FEWEST or median <= 0.0:
        return None

    def enough(size: int) -> bool:
        bounds = mean_bounds(ascending, size, confidence)
        return bounds is not None and (
            bounds[0] >= median * (1.0 - precision) and bounds[1] <= median * (1.0 + precision)
        )

    low, high = FEWEST - 1, FEWEST
    while not enough(high):
        if high == n:
            return _beyond(ascending, median, precision, confidence)
        low, high = high, min(2 * high, n)
    while high - low > 1:
        middle = (low + high) // 2
        if enough(middle):
            high = middle
        else:
            low = middle
    return Repetitions(high, extrapolated=False)


def _beyond(ascending: Floats, median: float, precision: float, confidence: float) -> Repetitions:
    # Half of the readings, since subsets that are nearly all of them hardly differ.
    half = max(FEWEST, len(ascending) // 2)
    bounds = mean_bounds(ascending, half, confidence)
    assert bounds is not None
    width = max(median - bounds[0], bounds[1] - median) / median
    return Repetitions(
        max(len(ascending) + 1, ceil(half * (width / precision) ** 2)), extrapolated=True
    )


def _expected(ascending: Floats, size: int, rank: int) -> float:
    """Expectation of the order statistic of ``rank`` of a random subset."""
    n = len(ascending)
    logs = _log_factorials(1 << (n + 1).bit_length())
    centre = rank / (size + 1.0)
    # Beyond eight deviations nothing is left to add.
    reach = 8.0 * n * sqrt(centre * (1.0 - centre) / (size + 2.0)) + 16.0
    first = max(rank, int(centre * n - reach))
    last = min(n - size + rank, int(centre * n + reach))
    i = np.arange(first, last + 1)
    weights = np.exp(
        logs[i - 1]
        - logs[i - rank]
        - logs[rank - 1]
        + logs[n - i]
        - logs[n - i - size + rank]
        - logs[size - rank]
        - (logs[n] - logs[size] - logs[n - size])
    )
    return float(weights @ ascending[i - 1] / weights.sum())


@lru_cache(maxsize=2)
def _log_factorials(n: int) -> Floats:
    made: Floats = special.gammaln(np.arange(n + 1.0) + 1.0)
    return made
