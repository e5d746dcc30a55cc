"""PANIC: the corners, then where the function is steepest (paper 004, section 4.2)."""

from __future__ import annotations

from itertools import product

import numpy as np

from kongming.arrays import Floats
from kongming.explore.policies import uni
from kongming.explore.situation import Situation, keys, without

_LIMIT = 1 << 14
_CORNERS = 32
_LISTED = 6
"""Columns of which all corners are listed: more have too many."""


def choose(situation: Situation, count: int) -> Floats:
    """Choose at most ``count`` codes: corners that are not run yet; then the free points nearest to
    the midpoints of the pairs of runs whose values differ most."""
    left = situation.candidates(_LIMIT)
    if not len(left):
        return left
    chosen: list[Floats] = []
    corners = without(_corners(situation), situation.taken)
    chosen += list(corners[:count])
    if len(chosen) < count and len(situation.values) >= 2:
        chosen += _midpoints(situation, without(left, keys(corners)), count - len(chosen))
    if len(chosen) < count:
        known = keys(np.array(chosen)) if chosen else set()
        chosen += list(without(uni.choose(situation, count + len(chosen)), known))
    return np.array(chosen[:count])


def _corners(situation: Situation) -> Floats:
    """The allowed points of the pool nearest to the corners of the scaled space, at most 32."""
    X = situation.features
    pool = situation.pool
    if len(pool) > _LIMIT:
        pool = pool[np.random.default_rng(situation.seed).integers(len(pool), size=_LIMIT)]
    points = X(pool)
    low, high = points.min(axis=0), points.max(axis=0)
    ends = np.array(list(product((False, True), repeat=min(points.shape[1], _LISTED))))
    rng = np.random.default_rng(situation.seed)
    if len(ends) > _CORNERS:
        ends = rng.integers(2, size=(_CORNERS, points.shape[1])).astype(bool)
    nearest = [
        int(np.argmin(((points - np.where(end, high, low)) ** 2).sum(axis=1))) for end in ends
    ]
    return pool[list(dict.fromkeys(nearest))]


def _midpoints(situation: Situation, left: Floats, count: int) -> list[Floats]:
    X = situation.features(situation.runs)
    free = situation.features(left)
    gaps = np.abs(situation.values[:, None] - situation.values)
    first, second = np.triu_indices(len(gaps), 1)
    order = np.argsort(-gaps[first, second], kind="stable")
    open_ = np.ones(len(left), dtype=bool)
    used: list[Floats] = []
    for pair in order[: 20 * count]:
        if len(used) == count or not open_.any():
            break
        a, b = X[first[pair]], X[second[pair]]
        away = ((free - (a + b) / 2.0) ** 2).sum(axis=1)
        at = int(np.argmin(np.where(open_, away, np.inf)))
        # A midpoint whose neighbourhood is measured already tells nothing new.
        if away[at] > ((a - b) ** 2).sum() / 4.0:
            continue
        open_[at] = False
        used.append(left[at])
    return used
