"""Whether readings follow the time of day, and whether they drift.

Both tests stand autocorrelation, which would let plain ones see a trend in any slow noise.
Time of day: each day has a vector (its 24-hour harmonic); where there is no rhythm of the day,
those of different days point anywhere. The length of their sum is held against that of the same
vectors turned by random angles (a permutation test of whole days, not of readings).
Drift: a line through the medians of consecutive blocks, with as many of them as their remaining
autocorrelation leaves.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import exp, sqrt

import numpy as np
from numpy.typing import NDArray
from scipy import special

from kongming.audit.intervals import MAD_TO_SIGMA
from kongming.dataset import Floats

__all__ = [
    "DAYS_FOR_TIME_OF_DAY",
    "SPAN_FOR_DRIFT_S",
    "Drift",
    "TimeOfDay",
    "drift",
    "logs",
    "time_of_day",
]

DAY_S = 86400.0

DAYS_FOR_TIME_OF_DAY = 3
"""Days, each read in most of its hours, below which nothing is said of the time of day."""

HOURS_OF_A_DAY = 16
"""A day counts where so many of its hours have a reading."""

SPAN_FOR_DRIFT_S = 3600.0
"""Span below which nothing is said of drift."""

READINGS_FOR_DRIFT = 24

_FIRST_TURNS, _TURNS = 999, 19_999
_REACH = 6.0


@dataclass(frozen=True, slots=True)
class TimeOfDay:
    """``swing`` is peak over trough less 1 of the 24-hour harmonic, ``peak_hour`` (UTC) where it
    is slowest; ``fitted`` (n,) is the harmonic at the readings, in log."""

    p: float
    swing: float
    peak_hour: float
    days: int
    fitted: Floats


@dataclass(frozen=True, slots=True)
class Drift:
    """``change`` is last over first less 1 along the line, over the whole span; ``fitted`` (n,)
    the line at the readings, in log."""

    p: float
    change: float
    per_day: float
    fitted: Floats


def logs(values: Floats) -> Floats:
    """Natural logs, with outliers drawn in to six robust deviations of the median."""
    made = np.log(values)
    middle = float(np.median(made))
    spread = MAD_TO_SIGMA * float(np.median(np.abs(made - middle)))
    if spread <= 0.0:
        return made
    return np.clip(made, middle - _REACH * spread, middle + _REACH * spread)


def time_of_day(seconds: Floats, y: Floats, seed: int = 0) -> TimeOfDay | None:
    """``seconds`` since the epoch, ascending, and ``y`` of ``logs``; None below
    ``DAYS_FOR_TIME_OF_DAY`` days."""
    if len(y) < 3 * DAYS_FOR_TIME_OF_DAY or (
        seconds[-1] - seconds[0] < (DAYS_FOR_TIME_OF_DAY - 0.5) * DAY_S
    ):
        return None
    # A trend would look the same in each day.
    rest = y - _line(seconds, y)
    day = ((seconds - seconds[0]) // DAY_S).astype(np.int64)
    hours = np.unique(((seconds - seconds[0]) // 3600.0).astype(np.int64))
    enough = np.bincount(hours // 24, minlength=int(day[-1]) + 1) >= HOURS_OF_A_DAY
    count = int(enough.sum())
    if count < DAYS_FOR_TIME_OF_DAY:
        return None
    angle = 2.0 * np.pi * (seconds % DAY_S) / DAY_S
    basis = np.column_stack((np.ones(len(y)), np.cos(angle), np.sin(angle)))
    days = int(day[-1]) + 1
    gram = np.empty((days, 3, 3))
    right = np.empty((days, 3))
    for a in range(3):
        right[:, a] = np.bincount(day, basis[:, a] * rest, minlength=days)
        for b in range(3):
            gram[:, a, b] = np.bincount(day, basis[:, a] * basis[:, b], minlength=days)
    found = np.linalg.solve(gram[enough], right[enough][:, :, None])[:, :, 0]
    vectors = found[:, 1] - 1j * found[:, 2]
    p = _turned(vectors, _FIRST_TURNS, seed)
    if p < 0.05:
        p = _turned(vectors, _TURNS, seed)
    mean = complex(vectors.mean())
    return TimeOfDay(
        p=p,
        swing=exp(2.0 * abs(mean)) - 1.0,
        peak_hour=float((-np.angle(mean)) % (2.0 * np.pi) / (2.0 * np.pi) * 24.0),
        days=count,
        fitted=np.real(mean * np.exp(1j * angle)),
    )


def drift(seconds: Floats, y: Floats) -> Drift | None:
    """As ``time_of_day``; None below ``SPAN_FOR_DRIFT_S`` or ``READINGS_FOR_DRIFT``."""
    n = len(y)
    span = float(seconds[-1] - seconds[0]) if n else 0.0
    if n < READINGS_FOR_DRIFT or span < SPAN_FOR_DRIFT_S:
        return None
    blocks = int(np.clip(n // 3, 8, 48))
    edges = np.linspace(0, n, blocks + 1).astype(np.int64)
    width = int(np.diff(edges).min())
    # Blocks of one size, so that their medians are one call.
    index = edges[:-1, None] + np.arange(width)
    levels = np.median(y[index], axis=1)
    middle = seconds[index].mean(axis=1)
    x = middle - middle.mean()
    centred = levels - levels.mean()
    sxx, syy = float(x @ x), float(centred @ centred)
    if syy <= 0.0 or sxx <= 0.0:
        return Drift(1.0, 0.0, 0.0, np.full(n, float(np.median(y))))
    slope = float(x @ centred) / sxx
    rest = centred - slope * x
    left = float(rest @ rest)
    lag1 = float(rest[1:] @ rest[:-1]) / left if left > 0.0 else 0.0
    # Two fitted parameters draw the correlation of few residuals down.
    lag1 = float(np.clip(lag1 + (1.0 + 4.0 * lag1) / blocks, 0.0, 0.95))
    effective = blocks * (1.0 - lag1) / (1.0 + lag1)
    if effective <= 6.0:
        p = 1.0
    else:
        error = sqrt(left / (effective - 2.0) / (sxx / blocks * effective))
        t = abs(slope) / error if error > 0.0 else np.inf
        p = float(2.0 * special.stdtr(effective - 2.0, -t))
    fitted = float(levels.mean()) + slope * (seconds - middle.mean())
    return Drift(p, exp(slope * span) - 1.0, exp(slope * DAY_S) - 1.0, fitted)


def _line(seconds: Floats, y: Floats) -> Floats:
    x = seconds - seconds.mean()
    return np.asarray(float(y.mean()) + x * float(x @ y) / float(x @ x))


def _turned(vectors: NDArray[np.complex128], turns: int, seed: int) -> float:
    """Share of random turns of each vector whose sum is at least as long."""
    random = np.random.default_rng(seed)
    angles = random.uniform(0.0, 2.0 * np.pi, size=(turns, len(vectors)))
    sums = np.abs(np.exp(1j * angles) @ vectors)
    length = abs(vectors.sum())
    return float((1 + np.count_nonzero(sums >= length * (1.0 - 1e-12))) / (turns + 1))
