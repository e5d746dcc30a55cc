"""Movement of a node's log environment over time, learned from its own fingerprints.

The mean squared difference of two fingerprints grows with the time between them. Of it, the part
that is there at once is reading noise and says nothing of age; the part that grows is taken to
grow steadily (as a random walk does), up to what two unrelated moments of the history differ by.

A history knows of the time that it spans, and of no more: five readings of the same two minutes do
not show what a node does in two days. What lies beyond moves as that of a node without a history.
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
    """Log units squared per second, and the most that they come to (log units squared), up to an
    age of ``span_s``; from there on as ``beyond``, independently of what was before."""

    rate: float
    most: float
    learnt: bool
    span_s: float = math.inf
    beyond: Movement | None = None

    def after(self, age_s: float) -> float:
        """Root mean square over surrogates of what an environment has moved by, in logs."""
        age = max(age_s, 0.0)
        within = math.sqrt(min(min(age, self.span_s) * self.rate, self.most))
        if self.beyond is None or age <= self.span_s:
            return within
        return math.hypot(within, self.beyond.after(age - self.span_s))

    def reach(self, age_s: float, level: float) -> float:
        """Return how far, in logs, an environment has moved at the most with probability ``level``:
        that quantile of a normal law whose deviation is ``after(age_s)``."""
        return NormalDist().inv_cdf((1.0 + level) / 2.0) * self.after(age_s)

    def time_to(self, movement: float) -> float:
        """Seconds until it has moved by so much; infinite if it never does."""
        squared = movement**2
        if self.rate > 0.0 and squared < self.most and squared / self.rate <= self.span_s:
            return squared / self.rate
        if self.beyond is None:
            return math.inf
        left = max(squared - self.after(self.span_s) ** 2, 0.0)
        return self.span_s + self.beyond.time_to(math.sqrt(left))


def default_movement(in_an_hour: float) -> Movement:
    """Return what is assumed of a node that has no history yet."""
    return Movement(in_an_hour**2 / _HOUR_S, in_an_hour**2, False)


def learn(taken_at: Floats, logs: Floats, default: Movement) -> Movement:
    """Learn from fingerprints ``logs`` (n, C), log seconds per operation, taken at ``taken_at``
    (n,).

    NaN is a surrogate that was not read. Below ``LEAST_HISTORY`` fingerprints, and for what lies
    beyond the time that they span, it is ``default``.
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
    most = 2.0 * (spread if spread is not None else 0.0)
    return Movement(rate, most, True, float(when[-1] - when[0]), default)


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
