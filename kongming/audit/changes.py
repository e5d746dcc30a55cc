"""Change points: when a series went to another level and stayed there.

Binary segmentation of normal scores of ranks, which no outlier can carry away; where the whole
shows no split, overlapping parts of it are tried, with their number accounted for. A split is where
the cumulated sum is farthest from 0; its p-value is that of a Brownian bridge (Kolmogorov), in
units of the long-run deviation of what the split leaves, so that slow noise is no change.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt

import numpy as np
from scipy import special

from kongming.audit.intervals import first_order_inflation, inflation, order_ranks
from kongming.dataset import Floats

__all__ = ["READINGS_FOR_CHANGE", "Changes", "change_points"]

READINGS_FOR_CHANGE = 20
"""Fewer readings are not searched."""

ALPHA = 0.01
"""A split has to be this unlikely."""

INDEPENDENT = 8
"""A stretch whose readings count as fewer than so many is too sluggish to tell a change from
noise."""

MOST = 12
"""Of one series."""


@dataclass(frozen=True, slots=True)
class Changes:
    """``at``: indices of the first readings after a change, ascending. ``p`` of each, and
    ``first_p`` that of the strongest split, significant or not."""

    at: tuple[int, ...]
    p: tuple[float, ...]
    first_p: float


def change_points(values: Floats, alpha: float = ALPHA) -> Changes | None:
    """Of readings in order of time; None below ``READINGS_FOR_CHANGE``."""
    n = len(values)
    if n < READINGS_FOR_CHANGE:
        return None
    scores = special.ndtri((order_ranks(values) - 0.5) / n)
    shortest = max(READINGS_FOR_CHANGE // 4, n // 50)
    found: dict[int, float] = {}
    first_p = 1.0
    waiting = [(0, n)]
    while waiting and len(found) < MOST:
        begin, end = waiting.pop(0)
        if end - begin < READINGS_FOR_CHANGE:
            continue
        at, p = _strongest(scores[begin:end], shortest)
        if (begin, end) == (0, n):
            first_p = p
        if p <= alpha:
            found[begin + at] = p
            waiting += [(begin, begin + at), (begin + at, end)]
    order = sorted(found)
    return Changes(tuple(order), tuple(found[k] for k in order), first_p)


def _strongest(scores: Floats, shortest: int) -> tuple[int, float]:
    """The strongest split of a stretch, or of parts of it: two changes that undo one another are
    none to the whole. The whole has half of the false alarms, the parts share the rest."""
    n = len(scores)
    at, p = _split(scores, shortest)
    p = min(1.0, 2.0 * p)
    parts = [
        (offset, offset + length)
        for length in (2 * n // 3, n // 2)
        for offset in (0, (n - length) // 2, n - length)
        if length >= 3 * READINGS_FOR_CHANGE
    ]
    for begin, end in parts if p > ALPHA else ():
        inner, own = _split(scores[begin:end], shortest, 2 * INDEPENDENT, p / (2.0 * len(parts)))
        own = min(1.0, 2.0 * len(parts) * own)
        if own < p:
            at, p = begin + inner, own
    return at, p


def _split(
    scores: Floats, shortest: int, independent: int = INDEPENDENT, below: float = 1.0
) -> tuple[int, float]:
    """Where, and how unlikely; a p that is not ``below`` may be told too small."""
    n = len(scores)
    sums = np.cumsum(scores - scores.mean())
    inside = np.abs(sums[shortest - 1 : n - shortest])
    if not len(inside) or inside.max() <= 0.0:
        return n // 2, 1.0
    at = int(inside.argmax()) + shortest
    rest = scores.copy()
    rest[:at] -= rest[:at].mean()
    rest[at:] -= rest[at:].mean()
    variance = float(rest @ rest) / (n - 2)
    if variance <= 0.0:
        return at, 0.0
    # Without autocorrelation p is least: where that is not enough, it need not be known.
    p = float(special.kolmogorov(float(inside.max()) / sqrt(n * variance)))
    if p > below:
        return at, p
    # Two fitted levels take away a share of the slow part of the noise.
    tau = min(float(n), max(float(inflation(rest)[0]), first_order_inflation(rest, fitted=3)))
    if n < independent * tau:
        return at, 1.0
    return at, float(special.kolmogorov(float(inside.max()) / sqrt(n * variance * tau)))
