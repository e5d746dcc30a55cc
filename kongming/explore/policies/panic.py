"""PANIC: the corners, then where the function is steepest (paper 004, section 4.2)."""

from __future__ import annotations

from itertools import product

import numpy as np
from numpy.typing import NDArray

from kongming.arrays import Floats
from kongming.explore.policies import uni
from kongming.explore.situation import Situation, keys, without

_LIMIT = 1 << 14
_CORNERS = 32


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
        free = without(left, keys(corners))
        chosen += _midpoints(situation, free, keys(corners), count - len(chosen))
    if len(chosen) < count:
        known = keys(np.array(chosen)) if chosen else set()
        chosen += list(without(uni.choose(situation, count + len(chosen)), known))
    return np.array(chosen[:count])


def _corners(situation: Situation) -> Floats:
    """The corners of the space, at most 32; of one that is not allowed, the nearest point of the
    pool."""
    X = situation.features
    pool = situation.pool
    if len(pool) > _LIMIT:
        pool = pool[np.random.default_rng(situation.seed).integers(len(pool), size=_LIMIT)]
    points = X(pool)
    if not situation.complete:
        codes, allowed = situation.space.judged(_ends_of_ranges(situation))
        wanted = X(codes)
    else:
        # Scaled columns of all points: a table has no others.
        low, high = points.min(axis=0), points.max(axis=0)
        wanted = np.where(_subsets(points.shape[1], situation.seed), high, low)
        codes, allowed = np.empty((len(wanted), pool.shape[1])), np.zeros(len(wanted), dtype=bool)
    for row in np.flatnonzero(~allowed):
        codes[row] = pool[np.argmin(((points - wanted[row]) ** 2).sum(axis=1))]
    distinct = {code.tobytes(): code for code in codes + 0.0}
    return np.array(list(distinct.values()))


def _ends_of_ranges(situation: Situation) -> Floats:
    """(n, d) codes that have an end of each dimension."""
    ends = np.array([dimension.ends() for dimension in situation.space.dimensions])
    return np.where(_subsets(len(ends), situation.seed), ends[:, 1], ends[:, 0])


def _subsets(columns: int, seed: int) -> NDArray[np.bool_]:
    """(n, columns) ends of the corners: all corners, or 32 random ones where there are more."""
    if 2**columns <= _CORNERS:
        return np.array(list(product((False, True), repeat=columns)))
    return np.random.default_rng(seed).integers(2, size=(_CORNERS, columns)).astype(bool)


def _midpoints(situation: Situation, left: Floats, corners: set[bytes], count: int) -> list[Floats]:
    """Points of ``left`` nearest to the middle of two runs: of a space that is not listed the
    middle itself, if that is allowed and free."""
    X = situation.features(situation.runs)
    free = situation.features(left)
    exact = None if situation.complete else _Middles(situation, corners)
    gaps = np.abs(situation.values[:, None] - situation.values)
    first, second = np.triu_indices(len(gaps), 1)
    order = np.argsort(-gaps[first, second], kind="stable")
    open_ = np.ones(len(left), dtype=bool)
    used: list[Floats] = []
    for pair in order[: 20 * count]:
        if len(used) == count or not open_.any():
            break
        code = None if exact is None else exact.between(first[pair], second[pair])
        if exact is not None and code is not None:
            if exact.take(code):
                used.append(code)
            continue
        a, b = X[first[pair]], X[second[pair]]
        away = ((free - (a + b) / 2.0) ** 2).sum(axis=1)
        at = int(np.argmin(np.where(open_, away, np.inf)))
        # A midpoint whose neighbourhood is measured already tells nothing new.
        if away[at] > ((a - b) ** 2).sum() / 4.0:
            continue
        open_[at] = False
        if exact is None or exact.take(left[at]):
            used.append(left[at])
    return used


class _Middles:
    """The middles of pairs of runs, snapped to the values of each dimension."""

    def __init__(self, situation: Situation, corners: set[bytes]) -> None:
        self._situation = situation
        self._taken = situation.taken | corners

    def take(self, codes: Floats) -> bool:
        """Return whether a point was free until now."""
        key = (codes + 0.0).tobytes()
        free = key not in self._taken
        self._taken.add(key)
        return free

    def between(self, first: int, second: int) -> Floats | None:
        """The (d,) codes; None where no such point is allowed."""
        space, runs = self._situation.space, self._situation.runs
        codes = [
            dimension.middle(*ends)
            for dimension, *ends in zip(
                space.dimensions, runs[first].tolist(), runs[second].tolist(), strict=True
            )
        ]
        judged, allowed = space.judged(np.array([codes]))
        return np.asarray(judged[0]) if allowed[0] else None
