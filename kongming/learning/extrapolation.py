"""Detection of environments outside the training range, by a defined distance.

Per column, the training runs span a range of log seconds per operation. A reading beyond it by more
than a margin is outside: for columns that the model uses the margin is a quarter of the range, or
three times the column's spread on the idle node, or 30 %, whichever is most, and at most a factor
of 1.9; for columns that it does not use it is that factor. So a surrogate twice beyond its range is
always outside. The distance is the largest excess in units of its margin.

The margins are wide because there are many columns. With 35 simulated ones whose readings have
heavy tails (Student's t, five degrees of freedom, a scale of 5 or 10 %), repeats of known
environments were flagged in 0.3 or 1.5 of 100 cases; with a margin of twice that spread or 15 %, in
2.8 or 5.5.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kongming.arrays import Floats

USED_SHARE = 0.2
"""A column counts as used if it can move the prediction by at least this share of the largest
move."""

_FACTOR = math.log(1.9)
_LEAST = math.log(1.3)
_SPREADS = 3.0


@dataclass(frozen=True, slots=True)
class Distance:
    """A distance from the training range: outside if ``value`` is above 1. ``columns`` holds the
    positions of the columns that are outside, farthest first."""

    value: float
    columns: tuple[int, ...]

    @property
    def outside(self) -> bool:
        return bool(self.columns)


def used(weights: Floats) -> NDArray[np.bool_]:
    """Return (p,): whether a column counts as used, by how much each can move the prediction."""
    moving = weights >= USED_SHARE * np.max(weights, initial=0.0)
    # To a model that uses no column all environments are equal.
    return np.asarray(moving & (weights > 0.0), dtype=np.bool_)


def margins(*, low: Floats, high: Floats, spread: Floats, weights: Floats) -> Floats:
    """Return (p,): how far beyond the training range, in logs, each column may lie.

    ``low`` and ``high`` (p,) bound the training runs in seconds per operation, ``spread`` (p,) is
    the spread of readings on the idle node in logs, ``weights`` (p,) how much each column can move
    the prediction.
    """
    near = np.maximum(np.maximum(0.25 * (np.log(high) - np.log(low)), _SPREADS * spread), _LEAST)
    return np.where(used(weights), np.minimum(near, _FACTOR), _FACTOR)


def excess(logs: Floats, log_low: Floats, log_high: Floats) -> Floats:
    """Return how far each column lies beyond its range, in logs: 0 or less within it. An
    environment is outside if an excess is more than the column's margin. ``logs`` are log seconds
    per operation, (p,) or (n, p)."""
    return np.maximum(logs - log_high, log_low - logs)


def distance_of(excess: Floats, margins: Floats) -> Distance:
    """Return the distance of one environment from the excess (p,) of its columns."""
    relative = excess / margins
    outside = [int(j) for j in np.argsort(-relative, kind="stable") if excess[j] > margins[j]]
    return Distance(float(np.max(relative, initial=0.0)), tuple(outside))


def distance(
    times: Floats, *, low: Floats, high: Floats, spread: Floats, weights: Floats
) -> Distance:
    """Return the distance of one environment, ``times`` (p,) in seconds per operation; the other
    arguments are as in ``margins``."""
    allowed = margins(low=low, high=high, spread=spread, weights=weights)
    return distance_of(excess(np.log(times), np.log(low), np.log(high)), allowed)
