"""Tables of how readings are spread: quantiles, histograms, numbers of repetitions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from kongming.audit.rows import Row, bounds_of, of_series, where_of
from kongming.audit.series import Series
from kongming.audit.summaries import Summary, histogram

__all__ = ["histograms_rows", "repetitions_rows", "summary_row"]


def summary_row(
    series: Series, name: int, machine_type: int, machine: int | None, one: Summary
) -> Row:
    p5, q1, median, q3, p95 = one.quantiles
    found = one.correlation
    return {
        **where_of(series, name, machine_type, machine),
        "unit": series.names[name].unit,
        "n": one.n,
        "effective": one.effective,
        "median": median,
        **bounds_of("median", one.intervals[1]),
        "mean": one.mean,
        "shortest": one.least,
        "p5": p5,
        **bounds_of("p5", one.intervals[0]),
        "q1": q1,
        "q3": q3,
        "p95": p95,
        **bounds_of("p95", one.intervals[2]),
        "longest": one.most,
        "cv": one.cv,
        "robust_cv": one.robust_cv,
        "longest_over_shortest": one.longest_over_shortest,
        "p95_over_p5": one.p95_over_p5,
        "autocorrelation": None if found is None else found.lag1,
        "autocorrelation_p": None if found is None else found.p,
        "count_as_one": None if found is None else found.tau,
    }


def repetitions_rows(
    series: Series, scope: str, found: Mapping[tuple[int, int], Summary]
) -> Iterable[Row]:
    for (name, other), one in found.items():
        if not series.names[name].timed:
            continue
        where = (
            where_of(series, name, other, None)
            if scope == "type"
            else of_series(series, (name, other))
        )
        tau = 1.0 if one.correlation is None else one.correlation.tau
        for precision, needed in one.needed.items():
            yield {
                **where,
                "precision_pct": 100.0 * precision,
                "measured": one.n,
                "needed": None if needed is None else needed.needed,
                "in_a_row": None if needed is None else int(np.ceil(needed.needed * tau)),
                "extrapolated": None if needed is None else needed.extrapolated,
            }


def histograms_rows(series: Series) -> list[Row]:
    rows = []
    for name in series.timed():
        for t in range(len(series.types)):
            own = [m for m in series.members(t).tolist() if (name, m) in series.slices]
            if not own:
                continue
            whole = histogram(np.sort(np.concatenate([series.of(name, m) for m in own])))
            edges = whole.edges.tolist()
            for machine in (None, *own):
                if machine is None:
                    counts, below, above = whole.counts, whole.below, whole.above
                else:
                    values = series.of(name, machine)
                    # The same bars for all machines of the type, to be compared.
                    counts, _ = np.histogram(values, whole.edges)
                    below = int(np.count_nonzero(values < edges[0]))
                    above = int(np.count_nonzero(values > edges[-1]))
                rows.append(
                    {
                        **where_of(series, name, t, machine),
                        "edges": edges,
                        "counts": counts.tolist(),
                        "below": below,
                        "above": above,
                    }
                )
    return rows
