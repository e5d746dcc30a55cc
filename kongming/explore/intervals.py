"""Intervals from what the model missed by where runs were left out (cross-conformal).

A miss is divided by how much the model misses near it, so that intervals are wide only where the
function is hard. Misses count by the share of the space that their run stands for. What is near a
point are other points: runs of the same point miss alike, and a new point has none. Levels that few
points cannot show are extrapolated from the largest miss.
"""

from __future__ import annotations

import numpy as np
from scipy.spatial import cKDTree
from scipy.stats import norm

from kongming.arrays import Floats
from kongming.explore.choice import least_prediction
from kongming.explore.runs import places_of_points

_NEAREST = 8
_PRIOR = 8.0
"""Points' worth of the typical miss that every place begins with."""
_OPTIMISM = 7.0
"""Widening of intervals, over the number of points that were run: the kind of model and its numbers
were chosen by the very misses that intervals are made of, so that these are smaller than those of
other points. Chosen on generated programs (``benchmarks/explore``)."""
_SPREAD = 3.0
"""Ratio of the largest to the least value from which misses are relative."""
_MOST = 10.0
"""Multiple of the largest value that an interval's upper end does not exceed, as no prediction is
below a tenth of the least, unless misses that are not relative say more. Where a value is near 0,
or a prediction without it, the ratio of the two is of any size, and tells nothing of others."""
_OVERFLOW = 400.0
"""Relative half-width beyond which a bound would be no number; others bound it before."""


class Intervals:
    """Half-widths at a level, from (m,) observations and the (m,) predictions without them."""

    def __init__(
        self, X: Floats, observed: Floats, held_out: Floats, shares: Floats, level: float
    ) -> None:
        """``X`` (m, p): the columns of the observations' points."""
        self._floor = least_prediction(observed)
        positive = self._floor > 0.0 and bool(held_out.min() > 0.0)
        self.relative = positive and bool(observed.max() > _SPREAD * observed.min())
        runs = _Runs(X, shares)
        self._runs, self._highest = runs, float(observed.max())
        self._misses = _Misses(runs, observed, held_out, level)
        self._relative_misses = (
            # Not the log of a ratio, which overflows over a denormal number.
            _Misses(runs, np.log(observed), np.log(held_out), level) if self.relative else None
        )
        # What a point's own runs measured, where they differ.
        order = np.argsort(runs.point, kind="stable")
        starts = np.cumsum(runs.counts) - runs.counts
        self._least = np.minimum.reduceat(observed[order], starts)
        self._most = np.maximum.reduceat(observed[order], starts)
        # That the next is like n that are all alike has a probability of (n + 1) / (n + 2) (rule of
        # succession). While that is less than the level, it may differ by as much as it is.
        points = len(runs.counts)
        unsure = (points + 1.0) / (points + 2.0) < level - 1e-12
        alike = bool(observed.min() == observed.max())
        self._least_width = abs(float(observed[0])) if alike and unsure else 0.0
        if self._least_width > 0.0:
            # Nor is it known whether there are others of 0, as of an indicator.
            self._floor = -np.inf

    def bounds(self, X: Floats, median: Floats) -> tuple[Floats, Floats]:
        """(n,) lower and upper bounds of further runs."""
        away, at = self._runs.tree.query(X)
        width = np.maximum(self._misses.widths(X, away), self._least_width)
        lower, upper = median - width, median + width
        if self._relative_misses is not None:
            relative = self._relative_misses.widths(X, away)
            ratio = np.exp(np.minimum(relative, _OVERFLOW))
            lower = median / ratio
            upper = np.minimum(median * ratio, np.maximum(upper, _MOST * self._highest))
        # No prediction is below that, and a time is never 0.
        lower = np.maximum(lower, self._floor)
        own = (away == 0.0) & (self._least[at] < self._most[at])
        lower = np.where(own, np.minimum(lower, self._least[at]), lower)
        upper = np.where(own, np.maximum(upper, self._most[at]), upper)
        # Whatever the misses were, an interval holds its median.
        return np.minimum(lower, median), np.maximum(upper, median)


class _Runs:
    """The points of (m,) observations: ``tree`` of the distinct ones, the ``point`` (m,) of each
    observation, the ``counts`` (n,) of each point, and the ``shares`` (m,) that they count by."""

    def __init__(self, X: Floats, shares: Floats) -> None:
        self.point = places_of_points(X)
        self.counts = np.bincount(self.point)
        self.tree = cKDTree(X[np.unique(self.point, return_index=True)[1]])
        self.shares = shares
        # As far from others as any run was, its miss is known; farther off nothing is.
        points = self.tree.data
        self.reach = float(self.tree.query(points, k=[min(2, len(points))])[0].max())

    def means(self, values: Floats) -> Floats:
        """Return the mean (n,) of the (m,) values of each point."""
        return np.bincount(self.point, values) / self.counts


class _Misses:
    """Widths from what (m,) predictions missed values by, in the units of the two."""

    def __init__(self, runs: _Runs, values: Floats, held_out: Floats, level: float) -> None:
        misses = np.abs(values - held_out)
        self._runs, self._near = runs, runs.means(misses)
        self._spread = float(np.std(runs.means(values)))
        self._typical = float(np.average(misses, weights=runs.shares))
        points = runs.tree.data
        ratios = misses / self._scale(points, own=True)[runs.point]
        order = np.argsort(ratios)
        below = np.cumsum(runs.shares[order]) / runs.shares.sum()
        # One further point may lie anywhere, also above all others.
        wanted = min(level * (1.0 + 1.0 / len(points)), 1.0)
        at = min(int(np.searchsorted(below, wanted - 1e-12)), len(order) - 1)
        self._factor = float(ratios[order[at]]) * (1.0 + _OPTIMISM / len(points))
        self._factor *= _beyond_largest(level, len(points))

    def widths(self, X: Floats, away: Floats) -> Floats:
        """Return the half-widths (n,) at (n, p) columns, which are ``away`` (n,) from the nearest
        point."""
        beyond = np.maximum(away - self._runs.reach, 0.0) / np.maximum(away, 1e-300)
        return np.asarray(self._factor * self._scale(X) + beyond * self._spread)

    def _scale(self, X: Floats, *, own: bool = False) -> Floats:
        """What is missed near (n, p) columns; ``own``: of the points themselves in their order,
        without what was missed at each."""
        k = min(_NEAREST + own, len(self._near))
        near = self._runs.tree.query(X, k=k)[1].reshape(len(X), k)
        nearby = self._near[near]
        if own:
            mine = near == np.arange(len(X))[:, None]
            nearby = np.where(mine, 0.0, nearby)
            k = k - mine.sum(axis=1)
        scale = (nearby.sum(axis=1) + _PRIOR * self._typical) / (k + _PRIOR)
        return np.asarray(np.maximum(scale, 1e-300))


def _beyond_largest(level: float, points: int) -> float:
    """Return how many times the largest miss of so many points is exceeded at a level, by a normal
    tail: 1 up to the level that the largest miss itself has, n / (n + 1)."""
    shown = 1.0 / (points + 1)
    # Not by 0.5 + level / 2, which may be rounded to 1.
    missed = min(1.0 - level, shown)
    return float(norm.isf(missed / 2.0) / norm.isf(shown / 2.0))
