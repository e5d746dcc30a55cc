"""Shrinkage of an answer from one prediction towards another, by what was left out.

A ridge regression tells the share of the way between two predictions that would have been best near
the question (stacking with two members, Breiman 1996); its standard error, and the error that is
left, tell how much of that the runs prove.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from kongming.arrays import Floats

SIZE = 0.03
"""Squared distance between two predictions (in logs) on what was left out that weighs as much as
the share that is assumed."""

CLIPPED = 0.5
"""Distances (in logs) above this are alike."""

_EXACT = 1e-9


def share_of_way(near: Floats, way: Floats, needed: Floats, prior: float) -> Floats:
    """(n,) share, 0 to 1, of the ``way`` (k,) that comes nearest to what was ``needed`` (k,) by the
    weights ``near`` (n, k): a ridge regression through ``prior``."""
    way, needed = clipped(way), clipped(needed)
    share = (near @ (way * needed) + prior * SIZE) / (near @ way**2 + SIZE)
    return np.clip(share, 0.0, 1.0)


def standard_error(
    near: Floats, way: Floats, needed: Floats, share: Floats, clusters: NDArray[np.intp]
) -> Floats:
    """(n,) standard error of the ``share`` (n,). What was left out in the same of ``clusters``
    (k,), numbers from 0, errs alike (Liang and Zeger 1986)."""
    way, needed = clipped(way), clipped(needed)
    single = near * way * (needed - share[:, None] * way)
    n, count = len(single), int(clusters.max(initial=-1)) + 1
    # A sum for each question and cluster; a matrix of who is in which would be squared in size.
    cells = (np.arange(n)[:, None] * count + clusters).ravel()
    away = np.bincount(cells, single.ravel(), minlength=n * count).reshape(n, count)
    return np.asarray(np.sqrt(np.sum(away**2, axis=1)) / (near @ way**2 + SIZE))


def error_left(near: Floats, way: Floats, needed: Floats, share: Floats) -> Floats:
    """(n,) mean absolute error near each question after a ``share`` (n,) of the way."""
    left = clipped(clipped(needed) - share[:, None] * clipped(way))
    count = np.maximum(near.sum(axis=1), _EXACT)
    return np.asarray(np.sum(near * np.abs(left), axis=1) / count)


def distinct(step: Floats, error: Floats) -> Floats:
    """(n,) steps without those that are shorter than the ``error`` (n,), in which they are lost;
    of the others it takes its square over their length (the non-negative garrote, Breiman 1995)."""
    lost = error**2 / np.maximum(step**2, _EXACT**2)
    return np.asarray(step * np.maximum(1.0 - lost, 0.0))


def clipped(logs: Floats) -> Floats:
    """Return distances (in logs) as they count for a share of the way."""
    return np.clip(logs, -CLIPPED, CLIPPED)
