"""How far a node's log environment moves over time, learned from its own fingerprints.

The mean squared difference of two fingerprints grows with the time between them. Of it, the part
that is there at once is reading noise and says nothing of age; the part that grows is taken to
grow steadily (as a random walk does), up to what two unrelated moments of the history differ by.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

from kongming.arrays import Floats

LEAST_HISTORY = 5
"""Fingerprints below which nothing is learnt."""

_LONG_LAG = 4
_HOUR_S = 3600.0


@dataclass(frozen=True, slots=True)
class Movement:
    """Log units squared per second, and the most that they come to (log units squared)."""

    rate: float
    most: float
    learnt: bool

    def after(self, age_s: float) -> float:
        """Root mean square over surrogates of what an environment has moved by, in logs."""
        return math.sqrt(min(max(age_s, 0.0) * self.rate, self.most))

    def reach(self, age_s: float, level: float) -> float:
        """How far, in logs, an environment has moved at the most with probability ``level``: that
        quantile of a normal law whose deviation is ``after(age_s)``."""
        return NormalDist().inv_cdf((1.0 + level) / 2.0) * self.after(age_s)

    def time_to(self, movement: float) -> float:
        """Seconds until it has moved by so much; infinite if it never does."""
        if self.rate <= 0.0 or movement**2 >= self.most:
            return math.inf
        return movement**2 / self.rate


def default_movement(in_an_hour: float) -> Movement:
    """What is assumed of a node that has no history yet."""
    return Movement(in_an_hour**2 / _HOUR_S, in_an_hour**2, False)


def learn(taken_at: Floats, logs: Floats, default: Movement) -> Movement:
    """From fingerprints ``logs`` (n, C), log seconds per operation, taken at ``taken_at`` (n,).

    NaN is a surrogate that was not read. Below ``LEAST_HISTORY`` fingerprints, ``default``.
    """
    if len(taken_at) < LEAST_HISTORY:
        return default
    order = np.argsort(taken_at, kind="stable")
    when, what = taken_at[order], logs[order]
    near = _differences(when, what, 1)
    far = _differences(when, what, min(_LONG_LAG, len(when) - 1))
    if near is None or far is None or far[1] <= near[1]:
        return default
    rate = max(far[0] - near[0], 0.0) / (far[1] - near[1])
    deviations = what - _column_means(what)
    spread = _mean_square(deviations)
    return Movement(rate, 2.0 * (spread if spread is not None else 0.0), True)


def _differences(when: Floats, what: Floats, lag: int) -> tuple[float, float] | None:
    """Mean squared difference and mean time between fingerprints ``lag`` apart."""
    square = _mean_square(what[lag:] - what[:-lag])
    return None if square is None else (square, float(np.mean(when[lag:] - when[:-lag])))


def _mean_square(values: Floats) -> float | None:
    known = ~np.isnan(values)
    n = int(np.count_nonzero(known))
    if n == 0:
        return None
    filled = np.where(known, values, 0.0)
    return float(np.sum(filled * filled)) / n


def _column_means(values: Floats) -> Floats:
    known = ~np.isnan(values)
    counts = np.maximum(np.count_nonzero(known, axis=0), 1)
    return np.asarray(np.sum(np.where(known, values, 0.0), axis=0) / counts, dtype=np.float64)
