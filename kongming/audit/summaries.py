"""What the readings of a name are like: on a machine, and over the machines of a type."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kongming.audit.intervals import (
    MAD_TO_SIGMA,
    Autocorrelation,
    Bounds,
    autocorrelation,
    clustered_size,
    inflation,
    order_ranks,
    quantile_interval,
)
from kongming.audit.repetitions import Repetitions, repetitions
from kongming.dataset import Floats

__all__ = ["QUANTILES", "Histogram", "Summary", "histogram", "of_machine", "of_type"]

QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)

_INTERVALS = (0.05, 0.5, 0.95)
"""The quantiles that have an interval."""

BARS = 40
"""Most bars of a histogram."""


@dataclass(frozen=True, slots=True)
class Summary:
    """Of n readings. ``quantiles`` are those of ``QUANTILES``; ``intervals`` those of the 5 %, 50 %
    and 95 % quantile (None: too few readings, or machines). ``effective`` is how many independent
    readings the median rests on. ``cv`` is the standard deviation over the mean, ``robust_cv`` the
    same from the median absolute deviation; both None, as the ratios, where values are not all
    above 0. ``needed`` is by precision."""

    n: int
    mean: float
    least: float
    most: float
    quantiles: tuple[float, ...]
    intervals: tuple[Bounds, Bounds, Bounds]
    effective: float
    cv: float | None
    robust_cv: float | None
    longest_over_shortest: float | None
    p95_over_p5: float | None
    correlation: Autocorrelation | None
    needed: dict[float, Repetitions | None]

    @property
    def median(self) -> float:
        return self.quantiles[2]


@dataclass(frozen=True, eq=False, slots=True)
class Histogram:
    """Counts between ``edges``; ``below`` and ``above`` lie outside them, so that a few outliers do
    not press all others into one bar."""

    edges: Floats
    counts: NDArray[np.int64]
    below: int
    above: int


def of_machine(
    values: Floats, confidence: float, precisions: Sequence[float], *, full: bool = True
) -> Summary:
    """Of one machine's readings in order of time; autocorrelation counts."""
    ascending = np.sort(values)
    n = len(values)
    ranks = order_ranks(values)
    found = autocorrelation(values, ranks)
    outer = np.array([ranks <= 0.05 * n, ranks <= 0.95 * n], dtype=np.float64)
    tails = inflation(outer) if full else np.ones(2)
    sizes = (n / float(tails[0]), n / found.tau, n / float(tails[1]))
    return _summary(ascending, sizes, found, confidence, precisions)


def of_type(stretches: Sequence[Floats], confidence: float, precisions: Sequence[float]) -> Summary:
    """Of the readings of several machines; each machine is a cluster. Intervals say where the
    quantile of further machines of the type would lie."""
    ascending = np.sort(np.concatenate(stretches))
    counts = [len(one) for one in stretches]
    at = np.quantile(ascending, _INTERVALS)
    below = np.array([[np.count_nonzero(one <= q) for one in stretches] for q in at], dtype=float)
    sizes = tuple(clustered_size(row, counts, confidence) for row in below)
    return _summary(ascending, sizes, None, confidence, precisions)


def histogram(ascending: Floats, bars: int = BARS) -> Histogram:
    """Between the 0.5 % and 99.5 % quantiles, a little widened; as many bars as the readings
    allow (Freedman and Diaconis)."""
    n = len(ascending)
    low, q1, q3, high = np.quantile(ascending, (0.005, 0.25, 0.75, 0.995))
    margin = 0.05 * (high - low)
    low, high = max(float(ascending[0]), low - margin), min(float(ascending[-1]), high + margin)
    if not high > low:
        # All alike: one bar around it.
        half = abs(low) * 0.005 or 0.5
        return Histogram(np.array([low - half, low + half]), np.array([n]), 0, 0)
    width = 2.0 * (q3 - q1) / n ** (1.0 / 3.0)
    count = bars if width <= 0.0 else int(np.clip(np.ceil((high - low) / width), 8, bars))
    edges = np.linspace(low, high, count + 1)
    counts, _ = np.histogram(ascending, edges)
    below = int(np.searchsorted(ascending, low, side="left"))
    above = n - int(np.searchsorted(ascending, high, side="right"))
    return Histogram(edges, counts, below, above)


def _summary(
    ascending: Floats,
    sizes: Sequence[float],
    correlation: Autocorrelation | None,
    confidence: float,
    precisions: Sequence[float],
) -> Summary:
    n = len(ascending)
    quantiles = tuple(float(q) for q in np.quantile(ascending, QUANTILES))
    low, bounds, high = (
        quantile_interval(ascending, q, confidence, size)
        for q, size in zip(_INTERVALS, sizes, strict=True)
    )
    mean = float(ascending.mean())
    positive = bool(ascending[0] > 0.0)
    deviation = float(ascending.std(ddof=1)) if n > 1 else 0.0
    median = quantiles[2]
    spread = MAD_TO_SIGMA * float(np.median(np.abs(ascending - median)))
    return Summary(
        n=n,
        mean=mean,
        least=float(ascending[0]),
        most=float(ascending[-1]),
        quantiles=quantiles,
        intervals=(low, bounds, high),
        effective=float(sizes[1]),
        cv=deviation / mean if positive else None,
        robust_cv=spread / median if positive else None,
        longest_over_shortest=float(ascending[-1] / ascending[0]) if positive else None,
        p95_over_p5=quantiles[4] / quantiles[0] if positive else None,
        correlation=correlation,
        needed={r: repetitions(ascending, r, confidence) for r in precisions},
    )
