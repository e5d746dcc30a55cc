"""Buckets, strata and the chi-square test of a sample. Standard library only: the driver of the
sampling job may have no more than PySpark."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

LEAST_EXPECTED = 5.0
"""Expected rows of a bin below which Pearson's approximation fails: such bins are put together."""

SIGNIFICANT = 0.05


def distinct_edges(quantiles: Sequence[float]) -> list[float]:
    """Return ascending edges without repeats: equal values are never put into two buckets, so that
    a frequent value makes one large bucket instead of several."""
    return sorted({float(value) for value in quantiles if math.isfinite(value)})


def frequent(counts: Mapping[str, int], buckets: int) -> list[str]:
    """Return the categories that keep a bucket of their own; the rest share the last one."""
    ranked = sorted(counts, key=lambda name: (-counts[name], name))
    return ranked if len(ranked) <= buckets else ranked[: buckets - 1]


def pearson(full: Mapping[str, int], sample: Mapping[str, int]) -> tuple[float, int, float]:
    """Return the statistic, the degrees of freedom and the p-value of Pearson's chi-square test
    that a sample without replacement has the distribution of the full data.

    The statistic is divided by the share that was not sampled (finite population): a sample of
    everything has no variance.
    """
    rows, drawn = sum(full.values()), sum(sample.values())
    if not rows or not drawn or drawn >= rows:
        return 0.0, 0, 1.0
    ratio = drawn / rows
    bins: list[tuple[float, float]] = []
    rest_expected = rest_observed = 0.0
    for name, count in full.items():
        expected, observed = count * ratio, float(sample.get(name, 0))
        if expected < LEAST_EXPECTED:
            rest_expected, rest_observed = rest_expected + expected, rest_observed + observed
        else:
            bins.append((expected, observed))
    if rest_expected >= LEAST_EXPECTED:
        bins.append((rest_expected, rest_observed))
    freedom = len(bins) - 1
    if freedom < 1:
        return 0.0, 0, 1.0
    statistic = sum((observed - expected) ** 2 / expected for expected, observed in bins)
    statistic /= 1.0 - ratio
    return statistic, freedom, chi_square_tail(statistic, freedom)


def chi_square_tail(statistic: float, freedom: int) -> float:
    """Return the probability of a chi-square variable above ``statistic``: the regularised upper
    incomplete gamma function Q(freedom / 2, statistic / 2) by series or continued fraction
    (Abramowitz and Stegun, 6.5.29 and 6.5.31)."""
    a, x = freedom / 2.0, statistic / 2.0
    if x <= 0.0:
        return 1.0
    scale = math.exp(a * math.log(x) - x - math.lgamma(a))
    if x < a + 1.0:
        term = total = 1.0 / a
        n = a
        while abs(term) > 1e-14 * abs(total):
            n += 1.0
            term *= x / n
            total += term
        return max(1.0 - total * scale, 0.0)
    # Lentz's method.
    b = x + 1.0 - a
    c, d = 1e300, 1.0 / b
    fraction = d
    for i in range(1, 10_000):
        step = -i * (i - a)
        b += 2.0
        d = 1.0 / (step * d + b)
        c = b + step / c
        fraction *= d * c
        if abs(d * c - 1.0) < 1e-14:
            break
    return min(max(fraction * scale, 0.0), 1.0)
