"""Draws that are spread: no two runs close to each other while other parts are empty."""

from __future__ import annotations

import numpy as np
from scipy.spatial import cKDTree

from kongming.arrays import Floats

_FEW = 4
"""Random points of which the farthest from all runs is drawn."""


def spread(points: Floats, done: Floats, count: int, rng: np.random.Generator) -> list[int]:
    """Draws that are almost uniform: of a few random points each time the one farthest from all
    runs. The farthest of all would be corners, which in many dimensions stand for little."""
    away = cKDTree(done).query(points)[0] ** 2 if len(done) else np.full(len(points), np.inf)
    chosen: list[int] = []
    for _ in range(min(count, len(points))):
        chosen.append(farthest(away, rng))
        away = np.minimum(away, ((points - points[chosen[-1]]) ** 2).sum(axis=1))
        away[chosen[-1]] = -1.0
    return chosen


def farthest(away: Floats, rng: np.random.Generator) -> int:
    few = rng.integers(len(away), size=_FEW)
    at = int(few[np.argmax(away[few])])
    return at if away[at] >= 0.0 else int(np.argmax(away))
