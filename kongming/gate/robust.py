"""Robust statistics of log times: trimmed means, quantiles, autocorrelation. Pure.

Nothing here needs more than the standard library.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise
from statistics import NormalDist, fmean, variance

from kongming.records.errors import InputError

TRIMMED = 0.2
"""Share of the runs that is trimmed at either end."""

Z_95, Z_99 = 1.645, 2.326
"""Standard normal deviates beyond which 5 % and 1 % lie on one side."""

_MANY_DEGREES = 100.0
"""Degrees of freedom from which the expansion of t alone is within 1e-5 as far out as 1e-6."""

_STEPS, _TERMS = 50, 500
"""The most steps of Newton's method, and terms of a continued fraction: it takes some tens."""


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


@lru_cache(maxsize=4096)
def t_quantile(probability: float, degrees: float) -> float:
    """Quantile of Student's t: Newton's method on the logarithm of ``t_tail``, from Abramowitz and
    Stegun 26.7.5, which alone is off by a factor of two in the tail of few degrees."""
    z = NormalDist().inv_cdf(probability)
    start = (
        z
        + (z**3 + z) / (4.0 * degrees)
        + (5.0 * z**5 + 16.0 * z**3 + 3.0 * z) / (96.0 * degrees**2)
        + (3.0 * z**7 + 19.0 * z**5 + 17.0 * z**3 - 15.0 * z) / (384.0 * degrees**3)
    )
    if degrees >= _MANY_DEGREES:
        return start
    t, beyond = abs(start), min(probability, 1.0 - probability)
    scale = math.lgamma((degrees + 1.0) / 2.0) - math.lgamma(degrees / 2.0)
    scale -= math.log(degrees * math.pi) / 2.0
    for _ in range(_STEPS):
        tail = t_tail(t, degrees)
        density = math.exp(scale - (degrees + 1.0) / 2.0 * math.log1p(t * t / degrees))
        step = math.log(tail / beyond) * tail / density
        t = max(t + step, 0.0)
        if abs(step) <= 1e-12 * (1.0 + t):
            break
    return math.copysign(t, z)


def t_tail(t: float, degrees: float) -> float:
    """Probability that Student's t exceeds ``t``."""
    square = t * t
    # By itself: 1 less the share of a large t is 0, or has few digits.
    rest = degrees / (degrees + square)
    if not rest:
        half = 0.0
    else:
        share = square / (degrees + square)
        half = 0.5 * _beta(degrees / 2.0, 0.5, rest, share) if share else 0.5
    return half if t >= 0.0 else 1.0 - half


def _beta(a: float, b: float, x: float, rest: float) -> float:
    """Regularised incomplete beta function, for 0 < x = 1 - rest < 1, by its continued fraction
    (Lentz's method)."""
    if x > (a + 1.0) / (a + b + 2.0):
        return 1.0 - _beta(b, a, rest, x)
    front = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b)
    front += a * math.log(x) + b * math.log(rest)
    c, d = 1.0, 1.0 / (1.0 - (a + b) * x / (a + 1.0))
    fraction = d
    for m in range(1, _TERMS):
        even = m * (b - m) * x / ((a + 2 * m - 1.0) * (a + 2 * m))
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1.0))
        for term in (even, odd):
            d, c = 1.0 / (1.0 + term * d), 1.0 + term / c
            fraction *= c * d
        if abs(c * d - 1.0) < 1e-14:
            break
    return math.exp(front) * fraction / a
