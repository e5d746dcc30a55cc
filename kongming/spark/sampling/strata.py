"""Buckets, strata and the chi-square test of a sample. Standard library only: the driver of the
sampling job may have no more than PySpark."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

LEAST_EXPECTED = 5.0
"""Expected rows of a bin below which Pearson's approximation fails: such bins are put together."""

SIGNIFICANT = 0.05
"""Probability at which a fair sample is held to differ."""


@dataclass(frozen=True)
class Clusters:
    """Sums over the groups of rows that are drawn together, all or none: of each bin the sum of the
    squares of its rows in a group (``squares``), and of its rows in a group times all rows of that
    (``products``)."""

    squares: Mapping[str, float]
    products: Mapping[str, float]

    def design_effect(self, shares: Mapping[str, float], drawn: int) -> float:
        """Return how many times the variance of a sample of single rows that of these groups is:
        the mean over the bins with these ``shares`` of all rows, for as many rows ``drawn``."""
        total = sum(self.products.values())
        effects = weights = 0.0
        for name, share in shares.items():
            if 0.0 < share < 1.0:
                own, product = self.squares.get(name, 0.0), self.products.get(name, 0.0)
                deviations = own - 2.0 * share * product + share**2 * total
                effects += (1.0 - share) * deviations / (drawn * share * (1.0 - share))
                weights += 1.0 - share
        return effects / weights if weights else 1.0


def distinct_edges(quantiles: Sequence[float]) -> list[float]:
    """Return ascending edges without repeats: equal values are never put into two buckets, so that
    a frequent value makes one large bucket instead of several."""
    return sorted({float(value) for value in quantiles if math.isfinite(value)})


def frequent(counts: Mapping[str, int], buckets: int) -> list[str]:
    """Return the categories that keep a bucket of their own; the rest share the last one."""
    ranked = sorted(counts, key=lambda name: (-counts[name], name))
    return ranked if len(ranked) <= buckets else ranked[: buckets - 1]


def pearson(
    full: Mapping[str, int], sample: Mapping[str, int], clusters: Clusters | None = None
) -> tuple[float, int, float]:
    """Return the statistic, the degrees of freedom and the p-value of Pearson's chi-square test
    that a sample without replacement has the distribution of the full data.

    The statistic is divided by the share that was not sampled (finite population): a sample of
    everything has no variance. Where rows were drawn in ``clusters``, such as the items of an
    order, which are alike, it is divided by the mean design effect as well (Rao and Scott, JASA 76,
    1981): a fair sample of clusters differs more than one of rows. Not where that leaves a sample
    of less than ``LEAST_EXPECTED`` rows a bin, by which it would be none of the full data at all.
    """
    rows, drawn = sum(full.values()), sum(sample.values())
    if not rows or not drawn or drawn >= rows:
        return 0.0, 0, 1.0
    ratio = drawn / rows
    bins: list[tuple[float, float]] = []
    shares: dict[str, float] = {}
    rest_expected = rest_observed = 0.0
    for name, count in full.items():
        expected, observed = count * ratio, float(sample.get(name, 0))
        if expected < LEAST_EXPECTED:
            rest_expected, rest_observed = rest_expected + expected, rest_observed + observed
        else:
            bins.append((expected, observed))
            shares[name] = count / rows
    if rest_expected >= LEAST_EXPECTED:
        bins.append((rest_expected, rest_observed))
    freedom = len(bins) - 1
    if freedom < 1:
        return 0.0, 0, 1.0
    statistic = sum((observed - expected) ** 2 / expected for expected, observed in bins)
    statistic /= 1.0 - ratio
    if clusters is not None:
        # Groups that are all alike have none, and no difference either.
        effect = max(clusters.design_effect(shares, drawn), 1e-9)
        if drawn / effect >= LEAST_EXPECTED * len(bins):
            statistic /= effect
    return statistic, freedom, chi_square_tail(statistic, freedom)


def significance_of_each(tests: int, attempts: int) -> float:
    """Return the p-value below which one of the tests of a sample says that it differs.

    Where only one sample is taken, all of its tests together refuse a fair one no oftener than
    ``SIGNIFICANT`` (Bonferroni; the first step of Holm, Scandinavian Journal of Statistics 6,
    1979). Where another is drawn instead, each test may.
    """
    return SIGNIFICANT / tests if attempts == 1 else SIGNIFICANT


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
