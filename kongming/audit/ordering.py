"""Whether the order of measuring shows in what was measured: the place in the block, and the
program that ran before.

Each block is in a random order, so neither depends on the state of the machine: plain rank tests
hold, whatever the autocorrelation. Levels of sessions are taken out first, and machines of a type
are put together, since such effects belong to the measuring and not to a machine.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import exp, sqrt

import numpy as np
from numpy.typing import NDArray
from scipy import special

from kongming.audit.intervals import order_ranks
from kongming.audit.multiple import holm
from kongming.audit.series import Ints, Series
from kongming.dataset import Floats

__all__ = ["READINGS_FOR_ORDER", "Place", "Predecessor", "place_effect", "predecessor_effect"]

READINGS_FOR_ORDER = 30

_OF_EACH = 5
"""A predecessor with fewer readings after it is not looked at."""


@dataclass(frozen=True, slots=True)
class Place:
    """``rho`` is the rank correlation with the place in the block; ``first`` the median of those
    that came first over the median of the others, less 1. ``p`` is of the stronger of both
    (Bonferroni)."""

    n: int
    rho: float
    first: float
    p: float


@dataclass(frozen=True, slots=True)
class Predecessor:
    """``p`` that no predecessor matters (Kruskal and Wallis). ``worst`` is the index of the program
    whose successors differ most, by ``ratio`` of medians less 1; ``worst_p`` of it against all
    others (Mann and Whitney, Holm over the predecessors)."""

    n: int
    p: float
    worst: int
    ratio: float
    worst_p: float


def levelled(series: Series, name: int, machines: Ints) -> tuple[Floats, Ints]:
    """Log readings of a name on these machines less the median of their session, and their rows."""
    rows = [
        np.arange(series.slices[name, m].start, series.slices[name, m].stop)
        for m in machines.tolist()
        if (name, m) in series.slices
    ]
    if not rows:
        return np.empty(0), np.empty(0, dtype=np.int64)
    index = np.concatenate(rows)
    index = index[series.value[index] > 0.0]
    if not len(index):
        return np.empty(0), index
    y = np.log(series.value[index])
    session = series.steps.session[index]
    order = np.argsort(session, kind="stable")
    edges = np.flatnonzero(np.diff(session[order])) + 1
    for part in np.split(order, edges):
        y[part] -= np.median(y[part])
    return y, index


def place_effect(y: Floats, place: Ints) -> Place | None:
    """``y`` (n,) of ``levelled`` and the place of each in its block, from 0."""
    n = len(y)
    if n < READINGS_FOR_ORDER or place.max(initial=0) < 1:
        return None
    ranks, places = order_ranks(y), order_ranks(place.astype(np.float64))
    rho = _correlation(ranks, places)
    p = _two_sided(rho * sqrt(n - 1.0))
    first = place == 0
    shift = 0.0
    if first.sum() >= _OF_EACH and (~first).sum() >= _OF_EACH:
        p = min(1.0, 2.0 * min(p, _rank_sum(ranks, first)))
        shift = exp(float(np.median(y[first]) - np.median(y[~first]))) - 1.0
    return Place(n, rho, shift, p)


def predecessor_effect(y: Floats, place: Ints, before: Ints) -> Predecessor | None:
    """``before`` (n,) is the index of the program that ran last, -1 for none.

    What comes with the place is taken out first: only the first of a block can follow itself.
    """
    y = y.copy()
    for one in np.unique(place).tolist():
        y[place == one] -= np.median(y[place == one])
    codes, counts = np.unique(before[before >= 0], return_counts=True)
    codes = codes[counts >= _OF_EACH]
    if len(codes) < 2:
        return None
    kept = np.isin(before, codes)
    y, before = y[kept], before[kept]
    n, k = len(y), len(codes)
    if n < READINGS_FOR_ORDER:
        return None
    ranks = order_ranks(y)
    groups = np.searchsorted(codes, before)
    sizes = np.bincount(groups, minlength=k)
    means = np.bincount(groups, ranks, minlength=k) / sizes
    variance = float(ranks.var(ddof=1))
    if variance <= 0.0:
        return None
    # With the variance of the ranks themselves, ties are accounted for.
    h = float(sizes @ (means - ranks.mean()) ** 2) / variance
    each = holm([_rank_sum(ranks, groups == g) for g in range(k)])
    worst = int(np.argmin(each))
    ratio = exp(float(np.median(y[groups == worst]) - np.median(y[groups != worst]))) - 1.0
    p = float(special.chdtrc(k - 1, h))
    return Predecessor(n, p, int(codes[worst]), ratio, float(each[worst]))


def _correlation(a: Floats, b: Floats) -> float:
    a, b = a - a.mean(), b - b.mean()
    scale = sqrt(float(a @ a) * float(b @ b))
    return float(a @ b) / scale if scale > 0.0 else 0.0


def _rank_sum(ranks: Floats, chosen: NDArray[np.bool_]) -> float:
    """Two-sided p of Mann and Whitney, by the normal approximation with ties."""
    n, m = len(ranks), int(chosen.sum())
    variance = float(ranks.var(ddof=1)) * m * (n - m) / n
    if variance <= 0.0:
        return 1.0
    return _two_sided((float(ranks[chosen].sum()) - m * float(ranks.mean())) / sqrt(variance))


def _two_sided(z: float) -> float:
    return float(special.erfc(abs(z) / sqrt(2.0)))
