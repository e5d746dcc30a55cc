"""The number of repetitions for a stated precision: CONFIRM (Maricq et al., OSDI 2018).

Subsets of s readings are drawn without replacement, the non-parametric interval of the median of
each is computed, and the lower and the upper bounds are averaged. The result is the smallest s
whose mean bounds are within r of the median of all readings. Here the mean is over *all* subsets
of that size, in closed form: a bound is an order statistic, whose expectation over subsets follows
from the hypergeometric distribution. So there is no random seed, and the order of readings does
not matter.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import ceil, sqrt

import numpy as np
from scipy import special

from kongming.arrays import Floats
from kongming.audit.analysis.quantile_intervals import rank_bounds

FEWEST = 10
"""The smallest subset, as in CONFIRM."""


@dataclass(frozen=True, slots=True)
class Repetitions:
    """``needed`` independent repetitions. ``extrapolated``: that is more than were measured, and
    estimated by the square-root law."""

    needed: int
    extrapolated: bool


def mean_bounds(ascending: Floats, size: int, confidence: float) -> tuple[float, float] | None:
    """Mean lower and upper bound of the median's interval over all subsets of ``size``."""
    ranks = rank_bounds(size, 0.5, confidence)
    if ranks is None or size > len(ascending):
        return None
    return _expected(ascending, size, ranks[0]), _expected(ascending, size, ranks[1])


def repetitions(
    ascending: Floats, precision: float, confidence: float = 0.95
) -> Repetitions | None:
    """Repetitions for a relative precision such as 0.01; None with fewer than ``FEWEST`` sorted
    readings, or a median that is not above 0."""
    n = len(ascending)
    median = float(np.median(ascending)) if n else 0.0
    if n < FEWEST or median <= 0.0:
        return None

    def is_enough(size: int) -> bool:
        bounds = mean_bounds(ascending, size, confidence)
        return bounds is not None and (
            bounds[0] >= median * (1.0 - precision) and bounds[1] <= median * (1.0 + precision)
        )

    low, high = FEWEST - 1, FEWEST
    while not is_enough(high):
        if high == n:
            return _extrapolate(ascending, median, precision, confidence)
        low, high = high, min(2 * high, n)
    while high - low > 1:
        middle = (low + high) // 2
        if is_enough(middle):
            high = middle
        else:
            low = middle
    return Repetitions(high, extrapolated=False)


def _extrapolate(
    ascending: Floats, median: float, precision: float, confidence: float
) -> Repetitions:
    # Half of the readings, since subsets of nearly all of them hardly differ.
    half = max(FEWEST, len(ascending) // 2)
    bounds = mean_bounds(ascending, half, confidence)
    assert bounds is not None
    width = max(median - bounds[0], bounds[1] - median) / median
    return Repetitions(
        max(len(ascending) + 1, ceil(half * (width / precision) ** 2)), extrapolated=True
    )


def _expected(ascending: Floats, size: int, rank: int) -> float:
    """Expectation of the order statistic of ``rank`` of a random subset of ``size``."""
    n = len(ascending)
    logs = _log_factorials(1 << (n + 1).bit_length())
    centre = rank / (size + 1.0)
    # Beyond eight standard deviations the weights are negligible.
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
    logs: Floats = special.gammaln(np.arange(n + 1.0) + 1.0)
    return logs
