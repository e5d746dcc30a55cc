"""Draws that are spread: no two runs close to each other while other parts are empty."""

from __future__ import annotations

import numpy as np
from scipy.spatial import cKDTree

from kongming.arrays import Floats

FEW = 4
"""Random points of which the farthest from all runs is drawn."""


def spread(
    points: Floats, done: Floats, count: int, rng: np.random.Generator, *, few: int = FEW
) -> list[int]:
    """Places of draws that are almost uniform: of ``few`` random points each time the one farthest
    from all runs. The farthest of all would be corners, which in many dimensions stand for little.

    ``points`` (n, p) and ``done`` (k, p) are columns; with ``few`` of 1 draws are uniform.
    """
    if few == 1:
        return [int(at) for at in rng.permutation(len(points))[:count]]
    away = cKDTree(done).query(points)[0] ** 2 if len(done) else np.full(len(points), np.inf)
    chosen: list[int] = []
    for _ in range(min(count, len(points))):
        chosen.append(farthest(away, rng, few))
        away = np.minimum(away, ((points - points[chosen[-1]]) ** 2).sum(axis=1))
        away[chosen[-1]] = -1.0
    return chosen


def farthest(away: Floats, rng: np.random.Generator, few: int = FEW) -> int:
    """The place of the largest of ``few`` random entries; negative ones are taken already."""
    drawn = rng.integers(len(away), size=few)
    at = int(drawn[np.argmax(away[drawn])])
    return at if away[at] >= 0.0 else int(np.argmax(away))


def farthest_paid(away: Floats, prices: Floats, rng: np.random.Generator) -> int:
    """The place of the largest of a few entries, which are drawn with probabilities that fall with
    the roots of their ``prices`` (n,): so the mean over a space is known best at a given cost
    (Neyman's allocation). Those of 0, which were run, are drawn only if there are no others."""
    places = np.flatnonzero(away > 0.0)
    if not len(places):
        places = np.flatnonzero(away >= 0.0)
    if not len(places):
        return 0
    roots = np.sqrt(prices[places])
    # The cheapest are always among them.
    drawn = places[rng.uniform(size=len(places)) * roots < roots.min()]
    return int(drawn[farthest(away[drawn], rng)])
