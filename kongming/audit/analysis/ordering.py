"""Effects of the order of measurement: the place in the block, and the program that ran before.

Each block is in a random order, so both are independent of the state of the machine, and plain rank
tests are valid under any autocorrelation. Levels of sessions are subtracted first, and the machines
of a type are pooled, since such effects are of the measurement and not of a machine.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import exp, sqrt

import numpy as np
from numpy.typing import NDArray
from scipy import special

from kongming.arrays import Floats
from kongming.audit.analysis.multiple import benjamini_hochberg, holm
from kongming.audit.analysis.quantile_intervals import order_ranks
from kongming.audit.analysis.series import Ints, Row, Series
from kongming.audit.analysis.settings import Settings

READINGS_FOR_ORDER = 30
"""Minimum number of readings for a test."""

READINGS_OF_GROUP = 5
"""Minimum number of readings first in a block, or after one predecessor."""


@dataclass(frozen=True, slots=True)
class Place:
    """Effect of the place in the block: ``rho`` is the rank correlation with it, ``first`` the
    median of the first readings over the median of the others, less 1. ``p`` is of the stronger of
    both (Bonferroni)."""

    n: int
    rho: float
    first: float
    p: float


@dataclass(frozen=True, slots=True)
class Predecessor:
    """Effect of the predecessor: ``p`` is of no effect (Kruskal and Wallis). ``worst`` is the index
    of the program whose successors differ most, by ``ratio`` of medians less 1; ``worst_p`` tests
    it against all others (Mann and Whitney, Holm over the predecessors)."""

    n: int
    p: float
    worst: int
    ratio: float
    worst_p: float


def order_rows(series: Series, settings: Settings) -> Mapping[str, list[Row]]:
    """The tables ``place`` and ``predecessor``, with false discoveries controlled in each."""
    places, predecessors = [], []
    for name in series.timed():
        for t in range(len(series.types)):
            y, rows = _centred(series, name, series.members(t))
            if not len(y):
                continue
            place = place_effect(y, series.steps.place[rows])
            if place is not None:
                places.append(
                    {
                        **series.type_columns(name, t),
                        "n": place.n,
                        "rho": place.rho,
                        "first_pct": 100.0 * place.first,
                        "p": place.p,
                    }
                )
            predecessor = predecessor_effect(
                y, series.steps.place[rows], series.steps.predecessor[rows]
            )
            if predecessor is not None:
                predecessors.append(
                    {
                        **series.type_columns(name, t),
                        "n": predecessor.n,
                        "after": series.names[predecessor.worst].name,
                        "effect_pct": 100.0 * predecessor.ratio,
                        "after_p": predecessor.worst_p,
                        "p": predecessor.p,
                    }
                )
    for table in (places, predecessors):
        for row, p in zip(table, benjamini_hochberg([row["p"] for row in table]), strict=True):
            row["adjusted_p"] = p
            row["claimed"] = bool(p <= settings.alpha)
    return {"place": places, "predecessor": predecessors}


def place_effect(y: Floats, place: Ints) -> Place | None:
    """Test centred logs ``y`` (n,) against the place of each in its block, from 0."""
    n = len(y)
    if n < READINGS_FOR_ORDER or place.max(initial=0) < 1:
        return None
    ranks, places = order_ranks(y), order_ranks(place.astype(np.float64))
    rho = _correlation(ranks, places)
    p = _two_sided(rho * sqrt(n - 1.0))
    first = place == 0
    shift = 0.0
    if first.sum() >= READINGS_OF_GROUP and (~first).sum() >= READINGS_OF_GROUP:
        p = min(1.0, 2.0 * min(p, _rank_sum(ranks, first)))
        shift = exp(float(np.median(y[first]) - np.median(y[~first]))) - 1.0
    return Place(n, rho, shift, p)


def predecessor_effect(y: Floats, place: Ints, before: Ints) -> Predecessor | None:
    """Test centred logs ``y`` (n,) against ``before`` (n,), the index of the program that ran last,
    -1 for none.

    The effect of the place is subtracted first, since only the first of a block can follow itself.
    """
    y = y.copy()
    for k in np.unique(place).tolist():
        y[place == k] -= np.median(y[place == k])
    codes, counts = np.unique(before[before >= 0], return_counts=True)
    codes = codes[counts >= READINGS_OF_GROUP]
    if len(codes) < 2:
        return None
    frequent = np.isin(before, codes)
    y, before = y[frequent], before[frequent]
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
    # The variance of the ranks corrects for ties.
    h = float(sizes @ (means - ranks.mean()) ** 2) / variance
    each = holm([_rank_sum(ranks, groups == g) for g in range(k)])
    worst = int(np.argmin(each))
    ratio = exp(float(np.median(y[groups == worst]) - np.median(y[groups != worst]))) - 1.0
    p = float(special.chdtrc(k - 1, h))
    return Predecessor(n, p, int(codes[worst]), ratio, float(each[worst]))


def _centred(series: Series, name: int, machines: Ints) -> tuple[Floats, Ints]:
    """Logs of the readings of a name on these machines less the median of their session, and the
    indices of the readings."""
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


def _correlation(a: Floats, b: Floats) -> float:
    a, b = a - a.mean(), b - b.mean()
    scale = sqrt(float(a @ a) * float(b @ b))
    return float(a @ b) / scale if scale > 0.0 else 0.0


def _rank_sum(ranks: Floats, chosen: NDArray[np.bool_]) -> float:
    """Two-sided p-value of Mann and Whitney, by the normal approximation with ties."""
    n, m = len(ranks), int(chosen.sum())
    variance = float(ranks.var(ddof=1)) * m * (n - m) / n
    if variance <= 0.0:
        return 1.0
    return _two_sided((float(ranks[chosen].sum()) - m * float(ranks.mean())) / sqrt(variance))


def _two_sided(z: float) -> float:
    return float(special.erfc(abs(z) / sqrt(2.0)))
