"""Summaries of the readings of a name, on a machine and over the machines of a type: quantiles with
intervals, histograms, and the number of repetitions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kongming.arrays import Floats
from kongming.audit.analysis.quantile_intervals import (
    MAD_TO_SIGMA,
    Autocorrelation,
    Bounds,
    autocorrelation,
    bounds_columns,
    clustered_size,
    inflation,
    order_ranks,
    quantile_interval,
)
from kongming.audit.analysis.repetitions import Repetitions, repetitions
from kongming.audit.analysis.series import Row, Series
from kongming.audit.analysis.settings import Settings

QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)

_INTERVALS = (0.05, 0.5, 0.95)
"""The quantiles with an interval."""

BARS = 40
"""Maximum number of bars of a histogram."""


@dataclass(frozen=True, slots=True)
class Summary:
    """Summary of n readings.

    ``quantiles`` are those of ``QUANTILES``; ``intervals`` those of the 5 %, 50 % and 95 % quantile
    (None: too few readings, or machines). ``effective`` is the number of independent readings that
    the median is worth. ``cv`` is the standard deviation over the mean, ``robust_cv`` the same from
    the median absolute deviation; both, and the ratios, are None where not all values are above 0.
    ``needed`` is by precision.
    """

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
    """Counts between ``edges``. ``below`` and ``above`` count the readings outside of them, so that
    a few outliers do not squeeze all others into one bar."""

    edges: Floats
    counts: NDArray[np.int64]
    below: int
    above: int


def summarise_machine(values: Floats, confidence: float, precisions: Sequence[float]) -> Summary:
    """Summarise the readings of one machine in order of time, with their autocorrelation."""
    ascending = np.sort(values)
    n = len(values)
    ranks = order_ranks(values)
    correlation = autocorrelation(values, ranks)
    tails = inflation(np.array([ranks <= 0.05 * n, ranks <= 0.95 * n], dtype=np.float64))
    sizes = (n / float(tails[0]), n / correlation.tau, n / float(tails[1]))
    return _summary(ascending, sizes, correlation, confidence, precisions)


def summarise_type(
    machines: Sequence[Floats], confidence: float, precisions: Sequence[float]
) -> Summary:
    """Summarise the readings of several machines; each machine is a cluster. The intervals are
    those of the quantile of further machines of the type."""
    ascending = np.sort(np.concatenate(machines))
    counts = [len(values) for values in machines]
    at = np.quantile(ascending, _INTERVALS)
    below = np.array([[np.count_nonzero(v <= q) for v in machines] for q in at], dtype=float)
    sizes = tuple(clustered_size(row, counts, confidence) for row in below)
    return _summary(ascending, sizes, None, confidence, precisions)


def summarise_machines(series: Series, settings: Settings) -> Summaries:
    """Summarise each name on each machine."""
    return {
        key: summarise_machine(series.value[where], settings.confidence, settings.precisions)
        for key, where in series.slices.items()
    }


def summarise_types(series: Series, settings: Settings) -> Summaries:
    """Summarise each name over the machines of each type."""
    summaries = {}
    for k in range(len(series.names)):
        for t in range(len(series.types)):
            parts = [series.of(k, m) for m in series.members(t).tolist() if (k, m) in series.slices]
            if parts:
                summaries[k, t] = summarise_type(parts, settings.confidence, settings.precisions)
    return summaries


def summary_rows(series: Series, by_type: Summaries, by_machine: Summaries) -> list[Row]:
    """Rows of types, then of machines."""
    return [
        *({**series.type_columns(*key), **_columns(series, key[0], summary)}
          for key, summary in by_type.items()),
        *({**series.machine_columns(*key), **_columns(series, key[0], summary)}
          for key, summary in by_machine.items()),
    ]  # fmt: skip


def repetition_rows(series: Series, by_type: Summaries, by_machine: Summaries) -> list[Row]:
    """Rows of types, then of machines; one for each precision."""
    return [
        *_repetition_rows(series, by_type, series.type_columns),
        *_repetition_rows(series, by_machine, series.machine_columns),
    ]


def histogram_rows(series: Series, by_type: Summaries) -> list[Row]:
    """Rows of types, and of their machines with the same bars, which can be compared; of what is
    summarised by type."""
    rows = []
    for name in series.timed():
        for t in range(len(series.types)):
            members = [m for m in series.members(t).tolist() if (name, m) in series.slices]
            if (name, t) not in by_type:
                continue
            total = histogram(np.sort(np.concatenate([series.of(name, m) for m in members])))
            edges = total.edges.tolist()
            rows.append(
                {
                    **series.type_columns(name, t),
                    "edges": edges,
                    "counts": total.counts.tolist(),
                    "below": total.below,
                    "above": total.above,
                }
            )
            for m in members:
                values = series.of(name, m)
                rows.append(
                    {
                        **series.machine_columns(name, m),
                        "edges": edges,
                        "counts": np.histogram(values, total.edges)[0].tolist(),
                        "below": int(np.count_nonzero(values < edges[0])),
                        "above": int(np.count_nonzero(values > edges[-1])),
                    }
                )
    return rows


Summaries = Mapping[tuple[int, int], Summary]
"""By name and machine, or by name and type."""


def histogram(ascending: Floats, bars: int = BARS) -> Histogram:
    """Histogram between the 0.5 % and 99.5 % quantiles, widened by 5 %, with as many bars as the
    readings allow (Freedman and Diaconis)."""
    n = len(ascending)
    low, q1, q3, high = np.quantile(ascending, (0.005, 0.25, 0.75, 0.995))
    margin = 0.05 * (high - low)
    low, high = max(float(ascending[0]), low - margin), min(float(ascending[-1]), high + margin)
    if not high > low:
        # All values are equal: one bar around them.
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


def _columns(series: Series, name: int, summary: Summary) -> Row:
    p5, q1, median, q3, p95 = summary.quantiles
    correlation = summary.correlation
    return {
        "unit": series.names[name].unit,
        "better": "lower" if series.names[name].lower_is_better else "higher",
        "n": summary.n,
        "effective": summary.effective,
        "median": median,
        **bounds_columns("median", summary.intervals[1]),
        "mean": summary.mean,
        "shortest": summary.least,
        "p5": p5,
        **bounds_columns("p5", summary.intervals[0]),
        "q1": q1,
        "q3": q3,
        "p95": p95,
        **bounds_columns("p95", summary.intervals[2]),
        "longest": summary.most,
        "cv": summary.cv,
        "robust_cv": summary.robust_cv,
        "longest_over_shortest": summary.longest_over_shortest,
        "p95_over_p5": summary.p95_over_p5,
        "autocorrelation": None if correlation is None else correlation.lag1,
        "autocorrelation_p": None if correlation is None else correlation.p,
        "count_as_one": None if correlation is None else correlation.tau,
    }


def _repetition_rows(
    series: Series, summaries: Summaries, columns: Callable[[int, int], Row]
) -> Iterable[Row]:
    for key, summary in summaries.items():
        if not series.names[key[0]].timed:
            continue
        tau = 1.0 if summary.correlation is None else summary.correlation.tau
        for precision, needed in summary.needed.items():
            yield {
                **columns(*key),
                "precision_pct": 100.0 * precision,
                "measured": summary.n,
                "needed": None if needed is None else needed.needed,
                "in_a_row": None if needed is None else int(np.ceil(needed.needed * tau)),
                "extrapolated": None if needed is None else needed.extrapolated,
            }
