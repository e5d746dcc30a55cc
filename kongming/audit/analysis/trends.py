"""Tests of one series over time: time of day, drift and change points.

All of them are valid under autocorrelation, where plain tests see a trend in any slow noise.

- Time of day: each day has a vector (its 24-hour harmonic); without a daily rhythm those of
  different days have random directions. The length of their sum is compared with that of the same
  vectors turned by random angles (a permutation test of days, not of readings).
- Drift: a regression line through the medians of consecutive blocks, whose number is reduced by
  the autocorrelation of the residuals. Two or three recordings have a level each and a common
  slope: a line through so few levels would fit, whatever they are.
- Change points: binary segmentation of normal scores of ranks, which are robust to outliers. Where
  the series shows no split, overlapping parts of it are tried, with a correction for their number
  (Bonferroni). A split is where the cumulated sum is farthest from 0; its p-value is that of a
  Brownian bridge (Kolmogorov), in units of the long-run deviation of the residuals. The package
  ruptures has no such test: with its penalties (PELT, 2 to 5 log n) it sees changes in 50 to 100 %
  of series of autocorrelated noise without any.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import exp, sqrt

import numpy as np
from numpy.typing import NDArray
from scipy import special

from kongming.arrays import Floats
from kongming.audit.analysis.quantile_intervals import (
    MAD_TO_SIGMA,
    first_order_inflation,
    inflation,
    order_ranks,
)

DAY_S = 86400.0

DAYS_FOR_TIME_OF_DAY = 3
"""Minimum number of days for a test of the time of day."""

HOURS_OF_A_DAY = 16
"""A day is used where so many of its hours have a reading."""

SPAN_FOR_DRIFT_S = 3600.0
"""Minimum duration of the longest recording for a test of drift."""

READINGS_FOR_DRIFT = 24

RECORDINGS_FOR_DRIFT = 4
"""Minimum number of recordings whose levels may show a drift."""

READINGS_FOR_CHANGE = 20
"""Minimum number of readings for a search of change points."""

ALPHA = 0.01
"""Maximum p-value of a split."""

INDEPENDENT = 8
"""Minimum effective size of a segment: in a smaller one a change and slow noise look the same."""

MAX_CHANGES = 12
"""Maximum number of changes of one series."""

_FIRST_TURNS, _TURNS = 999, 19_999
_REACH = 6.0


@dataclass(frozen=True, slots=True)
class TimeOfDay:
    """Daily rhythm: ``swing`` is peak over trough less 1 of the 24-hour harmonic, ``peak_hour``
    (UTC) that of its peak; ``fitted`` (n,) is the harmonic at the readings, in log."""

    p: float
    swing: float
    peak_hour: float
    days: int
    fitted: Floats


@dataclass(frozen=True, slots=True)
class Drift:
    """Linear drift: ``change`` is last over first less 1 along the line, over ``span_s``;
    ``fitted`` (n,) is the line at the readings, in log, and ``trend`` (n,) that without its
    ``levels``, which are one or one for each recording."""

    p: float
    change: float
    span_s: float
    per_day: float
    fitted: Floats
    trend: Floats
    levels: int


@dataclass(frozen=True, slots=True)
class Changes:
    """Change points: ``at`` are the indices of the first readings after a change, ascending, ``p``
    is by change, ``first_p`` that of the strongest split, significant or not."""

    at: tuple[int, ...]
    p: tuple[float, ...]
    first_p: float


def logs(values: Floats) -> Floats:
    """Natural logs, clipped to six robust deviations from the median."""
    y = np.log(values)
    middle = float(np.median(y))
    spread = MAD_TO_SIGMA * float(np.median(np.abs(y - middle)))
    if spread <= 0.0:
        return y
    return np.clip(y, middle - _REACH * spread, middle + _REACH * spread)


def time_of_day(seconds: Floats, y: Floats, seed: int = 0) -> TimeOfDay | None:
    """Test for a daily rhythm: ``seconds`` since the epoch, ascending, and ``y`` of ``logs``; None
    below ``DAYS_FOR_TIME_OF_DAY`` days."""
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
    coef = np.linalg.solve(gram[enough], right[enough][:, :, None])[:, :, 0]
    vectors = coef[:, 1] - 1j * coef[:, 2]
    p = _rotation_p(vectors, _FIRST_TURNS, seed)
    if p < 0.05:
        p = _rotation_p(vectors, _TURNS, seed)
    mean = complex(vectors.mean())
    return TimeOfDay(
        p=p,
        swing=exp(2.0 * abs(mean)) - 1.0,
        peak_hour=float((-np.angle(mean)) % (2.0 * np.pi) / (2.0 * np.pi) * 24.0),
        days=count,
        fitted=np.real(mean * np.exp(1j * angle)),
    )


def drift(seconds: Floats, y: Floats, recording: NDArray[np.int64] | None = None) -> Drift | None:
    """Test for a linear drift: arguments as of ``time_of_day``, and the number of the recording of
    each reading; None below ``SPAN_FOR_DRIFT_S`` or ``READINGS_FOR_DRIFT``."""
    n = len(y)
    parts = _parts(n, recording)
    span = _longest(seconds, parts)
    if n < READINGS_FOR_DRIFT or _longest(seconds, _recordings(n, recording)) < SPAN_FOR_DRIFT_S:
        return None
    blocks = int(np.clip(n // 3, 8, 48))
    fitted = np.empty(n)
    centred, x, middles = [], [], []
    for part in parts:
        level, middle = _block_levels(seconds, y, part, max(1, round(blocks * len(part) / n)))
        centred.append(level - level.mean())
        x.append(middle - middle.mean())
        middles.append(float(middle.mean()))
        fitted[part] = float(level.mean())
    blocks = sum(map(len, x))
    sxx = sum(float(own @ own) for own in x)
    syy = sum(float(own @ own) for own in centred)
    if syy <= 0.0 or sxx <= 0.0:
        return Drift(1.0, 0.0, span, 0.0, np.full(n, float(np.median(y))), np.zeros(n), len(parts))
    slope = sum(float(a @ b) for a, b in zip(x, centred, strict=True)) / sxx
    rest = [b - slope * a for a, b in zip(x, centred, strict=True)]
    left = sum(float(own @ own) for own in rest)
    lag1 = sum(float(own[1:] @ own[:-1]) for own in rest) / left if left > 0.0 else 0.0
    # Two fitted parameters bias the correlation of few residuals downwards.
    lag1 = float(np.clip(lag1 + (1.0 + 4.0 * lag1) * len(parts) / blocks, 0.0, 0.95))
    effective = blocks * (1.0 - lag1) / (1.0 + lag1)
    freedom = effective - len(parts) - 1.0
    if freedom <= 4.0:
        p = 1.0
    else:
        error = sqrt(left / freedom / (sxx / blocks * effective))
        t = abs(slope) / error if error > 0.0 else np.inf
        p = float(2.0 * special.stdtr(freedom, -t))
    trend = np.empty(n)
    for part, middle_s in zip(parts, middles, strict=True):
        trend[part] = slope * (seconds[part] - middle_s)
    change, per_day = exp(slope * span) - 1.0, exp(slope * DAY_S) - 1.0
    return Drift(p, change, span, per_day, fitted + trend, trend, len(parts))


def _parts(n: int, recording: NDArray[np.int64] | None) -> list[NDArray[np.int64]]:
    """Return the readings of each recording that has a level of its own, by index."""
    recordings = _recordings(n, recording)
    return recordings if len(recordings) < RECORDINGS_FOR_DRIFT else [np.arange(n)]


def _recordings(n: int, recording: NDArray[np.int64] | None) -> list[NDArray[np.int64]]:
    """Return the readings of each recording, by index."""
    if recording is None:
        return [np.arange(n)]
    return [np.flatnonzero(recording == number) for number in np.unique(recording).tolist()]


def _longest(seconds: Floats, parts: list[NDArray[np.int64]]) -> float:
    return max((float(np.ptp(seconds[part])) for part in parts if len(part)), default=0.0)


def _block_levels(
    seconds: Floats, y: Floats, part: NDArray[np.int64], blocks: int
) -> tuple[Floats, Floats]:
    """Return the median, and the mean time, of consecutive blocks of some of the readings."""
    edges = np.linspace(0, len(part), blocks + 1).astype(np.int64)
    width = int(np.diff(edges).min())
    # Blocks of equal size: their medians are one call.
    index = part[edges[:-1, None] + np.arange(width)]
    return np.median(y[index], axis=1), seconds[index].mean(axis=1)


def change_points(values: Floats, alpha: float = ALPHA) -> Changes | None:
    """Search for change points of readings in order of time; None below ``READINGS_FOR_CHANGE``."""
    n = len(values)
    if n < READINGS_FOR_CHANGE:
        return None
    scores = special.ndtri((order_ranks(values) - 0.5) / n)
    shortest = max(READINGS_FOR_CHANGE // 4, n // 50)
    splits: dict[int, float] = {}
    first_p = 1.0
    waiting = [(0, n)]
    while waiting and len(splits) < MAX_CHANGES:
        begin, end = waiting.pop(0)
        if end - begin < READINGS_FOR_CHANGE:
            continue
        at, p = _strongest(scores[begin:end], shortest)
        if (begin, end) == (0, n):
            first_p = p
        if p <= alpha:
            splits[begin + at] = p
            waiting += [(begin, begin + at), (begin + at, end)]
    order = sorted(splits)
    return Changes(tuple(order), tuple(splits[k] for k in order), first_p)


def _line(seconds: Floats, y: Floats) -> Floats:
    x = seconds - seconds.mean()
    return np.asarray(float(y.mean()) + x * float(x @ y) / float(x @ x))


def _rotation_p(vectors: NDArray[np.complex128], turns: int, seed: int) -> float:
    """Share of random rotations of the vectors whose sum is at least as long."""
    random = np.random.default_rng(seed)
    angles = random.uniform(0.0, 2.0 * np.pi, size=(turns, len(vectors)))
    sums = np.abs(np.exp(1j * angles) @ vectors)
    length = abs(vectors.sum())
    return float((1 + np.count_nonzero(sums >= length * (1.0 - 1e-12))) / (turns + 1))


def _strongest(scores: Floats, shortest: int) -> tuple[int, float]:
    """The strongest split of a segment, or of its parts, since two opposite changes cancel in the
    segment. The segment has half of the false alarms, the parts share the other half."""
    n = len(scores)
    at, p = _split(scores, shortest)
    p = min(1.0, 2.0 * p)
    parts = [
        (offset, offset + length)
        for length in (2 * n // 3, n // 2)
        for offset in (0, (n - length) // 2, n - length)
        if length >= 3 * READINGS_FOR_CHANGE
    ]
    for begin, end in parts if p > ALPHA else ():
        inner, own = _split(scores[begin:end], shortest, 2 * INDEPENDENT, p / (2.0 * len(parts)))
        own = min(1.0, 2.0 * len(parts) * own)
        if own < p:
            at, p = begin + inner, own
    return at, p


def _split(
    scores: Floats, shortest: int, independent: int = INDEPENDENT, below: float = 1.0
) -> tuple[int, float]:
    """Index and p-value of the best split. A p-value that is not ``below`` is a lower bound."""
    n = len(scores)
    sums = np.cumsum(scores - scores.mean())
    inside = np.abs(sums[shortest - 1 : n - shortest])
    if not len(inside) or inside.max() <= 0.0:
        return n // 2, 1.0
    at = int(inside.argmax()) + shortest
    rest = scores.copy()
    rest[:at] -= rest[:at].mean()
    rest[at:] -= rest[at:].mean()
    variance = float(rest @ rest) / (n - 2)
    if variance <= 0.0:
        return at, 0.0
    # Without autocorrelation p is smallest: if that is too large, there is no need to compute tau.
    p = float(special.kolmogorov(float(inside.max()) / sqrt(n * variance)))
    if p > below:
        return at, p
    # The two fitted levels remove a part of the slow noise.
    tau = min(float(n), max(float(inflation(rest)[0]), first_order_inflation(rest, fitted=3)))
    if n < independent * tau:
        return at, 1.0
    return at, float(special.kolmogorov(float(inside.max()) / sqrt(n * variance * tau)))
