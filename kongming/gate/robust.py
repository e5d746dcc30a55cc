"""Robust statistics of log times: trimmed means, quantiles in closed form, autocorrelation. Pure.

Nothing here needs more than the standard library.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from itertools import pairwise
from statistics import NormalDist, fmean, variance

from kongming.records.errors import InputError

TRIMMED = 0.2
"""Share of the runs that is trimmed at either end."""

Z_95, Z_99 = 1.645, 2.326
"""Standard normal deviates beyond which 5 % and 1 % lie on one side."""


def logs(times: Sequence[float]) -> list[float]:
    for time in times:
        if not 0.0 < time < math.inf:
            raise InputError("is not a time.", field="runs", value=time, allowed="above 0")
    return [math.log(time) for time in times]


def autocorrelation_time(values: Sequence[float], z: float = Z_95) -> float:
    """Consecutive values that count as one, at least 1, from the correlation of neighbours' ranks;
    1 where noise alone may correlate them as much (one-sided, at the normal deviate ``z``). Equal
    values share one rank: a coarse clock makes no order."""
    n = len(values)
    ordered = sorted(values)
    # Twice the mean rank, less its mean.
    ranks = [bisect_left(ordered, value) + bisect_right(ordered, value) - n for value in values]
    total = sum(rank * rank for rank in ranks)
    if not total:
        return 1.0
    alike = sum(a * b for a, b in pairwise(ranks)) / total
    return 1.0 if alike <= z / math.sqrt(n) else min((1.0 + alike) / (1.0 - alike), n)


def untrimmed(count: int) -> int:
    return count - 2 * int(TRIMMED * count)


def trimmed(values: Sequence[float]) -> tuple[float, float, int]:
    """Trimmed mean; the standard deviation of one value that gives the mean's standard error as
    ``sd / sqrt(n)``; degrees of freedom."""
    ordered, n = sorted(values), len(values)
    cut, left = int(TRIMMED * n), untrimmed(n)
    middle = ordered[cut : n - cut]
    winsorised = [middle[0]] * cut + middle + [middle[-1]] * cut
    # Yuen: the squared standard error is (n - 1) s_w^2 / (h (h - 1)).
    error = (n - 1) * variance(winsorised) / (left * (left - 1))
    return fmean(middle), math.sqrt(error * n), left - 1


def chi_square_quantile(probability: float, degrees: float) -> float:
    """Wilson and Hilferty 1931: within 2 % from three degrees on."""
    share = 2.0 / (9.0 * degrees)
    z = NormalDist().inv_cdf(probability)
    return float(degrees * (1.0 - share + z * math.sqrt(share)) ** 3)


def t_quantile(probability: float, degrees: float) -> float:
    """Abramowitz and Stegun 26.7.5: within 1 % from three degrees on."""
    z = NormalDist().inv_cdf(probability)
    return (
        z
        + (z**3 + z) / (4.0 * degrees)
        + (5.0 * z**5 + 16.0 * z**3 + 3.0 * z) / (96.0 * degrees**2)
        + (3.0 * z**7 + 19.0 * z**5 + 17.0 * z**3 - 15.0 * z) / (384.0 * degrees**3)
    )
