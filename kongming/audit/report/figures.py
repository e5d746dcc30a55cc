"""The figures of a page: which readings are drawn, and their captions."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from markupsafe import Markup

from kongming.audit.analysis.document import Audit
from kongming.audit.analysis.series import Row
from kongming.audit.report import plots
from kongming.audit.report.sections import claimed, levels_of, repetition_counts
from kongming.quantities import per_cent
from kongming.records import moments
from kongming.web.formats import quantity, ratio

Document = Mapping[str, Any]

MAX_STRIPS = 12
"""Maximum number of machines below a histogram."""

MAX_TIMELINES = 10
"""Maximum number of timelines with a claim, and of those without one."""

MAX_DAYS = 6
"""Maximum number of figures by hour of the day."""

MIN_READINGS = 8
"""Minimum number of readings of a timeline."""


@dataclass(frozen=True, slots=True)
class Figure:
    """A drawing with its caption. ``keys`` are colour and name of each series."""

    title: str
    svg: Markup
    notes: Sequence[str] = ()
    keys: Sequence[tuple[str, str]] = ()


def histograms(document: Document) -> Mapping[str, list[Figure]]:
    """Histograms by kind (the paper's Figure 2), each with the strips of its machines."""
    summaries = {row["name"]: row for row in document["summaries"] if row["machine"] is None}
    levels = levels_of(document)
    by_name: dict[str, list[Row]] = {}
    for row in document["histograms"]:
        by_name.setdefault(row["name"], []).append(row)
    figures: dict[str, list[Figure]] = {"program": [], "surrogate": []}
    for name, (total, *machines) in by_name.items():
        summary = summaries[name]
        machines.sort(key=lambda row: levels.get((row["machine"], row["name"]), 0.0))
        shown = _ends(machines, MAX_STRIPS) if len(machines) > 1 else []
        notes = [
            f"longest/shortest {ratio(summary['longest_over_shortest'])}, p95/p5 "
            f"{ratio(summary['p95_over_p5'])}",
            f"median {_with_interval(summary)}, n = {summary['n']:,}",
            _omissions(total, len(machines), len(shown)),
        ]
        figures[total["kind"]].append(Figure(name, plots.histogram(total, shown, summary), notes))
    return figures


def gain_figure(document: Document) -> Figure | None:
    """Gain of dropping the slowest machines."""
    rows = document["dropping"]
    if not rows:
        return None
    keys = list(zip(plots.SERIES_COLOURS, ("surrogates", "programs"), strict=False))
    return Figure("Gain", plots.gains(rows), keys=keys)


def timelines(audit: Audit, document: Document) -> Mapping[str, list[Figure]]:
    """Timelines of series that change or drift, and of programs that do not."""
    changes = sorted(document["changes"], key=lambda row: -abs(row["change_pct"]))
    drifts = sorted(claimed(document["drift"]), key=lambda row: -abs(row["change_pct"]))
    moving = dict.fromkeys((r["machine"], r["kind"], r["name"]) for r in (*changes, *drifts))
    steady = [
        (row["machine"], name.kind, name.name)
        for name in audit.series.names
        if name.kind == "program"
        for row in document["machines"]
    ]
    chosen = list(moving)[:MAX_TIMELINES]
    rest = [key for key in steady if key not in chosen][:MAX_TIMELINES]
    return {
        group: [figure for key in keys if (figure := _timeline(audit, key, changes)) is not None]
        for group, keys in (("moving", chosen), ("steady", rest))
    }


def _timeline(audit: Audit, key: tuple[str, str, str], changes: Sequence[Row]) -> Figure | None:
    series = audit.series
    machine, kind, name = key
    k = next(i for i, n in enumerate(series.names) if (n.kind, n.name) == (kind, name))
    where = series.slices.get((k, series.machines.index(machine)))
    if where is None or where.stop - where.start < MIN_READINGS:
        return None
    seconds, values = series.seconds[where], series.value[where]
    at = sorted(
        moments.unix(row["at"], "at")
        for row in changes
        if (row["machine"], row["name"]) == (machine, name)
    )
    edges = [0, *np.searchsorted(seconds, at).tolist(), len(values)]
    segments = [(a, b) for a, b in itertools.pairwise(edges) if b > a] if at else []
    drawn = min(plots.DOTS, len(values))
    return Figure(
        f"{name} on {machine}",
        plots.timeline(seconds, values, series.names[k].unit, name, segments),
        [f"{drawn:,} of {len(values):,} readings are drawn; lines are of all."],
    )


def day_figures(audit: Audit, document: Document) -> list[Figure]:
    """Readings by hour of the day, of series with a daily rhythm."""
    rows = sorted(claimed(document["time_of_day"]), key=lambda row: -row["swing_pct"])
    series = audit.series
    figures = []
    for row in rows[:MAX_DAYS]:
        k = next(
            i for i, n in enumerate(series.names) if (n.kind, n.name) == (row["kind"], row["name"])
        )
        where = series.slices[k, series.machines.index(row["machine"])]
        svg = plots.hours(
            series.seconds[where], series.value[where], series.names[k].unit, row["name"]
        )
        note = f"{per_cent(row['swing_pct'])} over {row['days']} days, hours in UTC"
        figures.append(Figure(f"{row['name']} on {row['machine']}", svg, [note]))
    return figures


def repetition_figure(document: Document) -> Figure | None:
    """Repetitions needed, by name and precision."""
    by_name = repetition_counts(document)
    if not by_name:
        return None
    points = [
        (name, [row["needed"] for row in rows], rows[0]["measured"])
        for name, rows in by_name.items()
    ]
    names = [
        f"within {per_cent(row['precision_pct'], 'g')}" for row in next(iter(by_name.values()))
    ]
    keys = list(zip(itertools.cycle(plots.SERIES_COLOURS), names, strict=False))
    return Figure("", plots.repetitions(points), keys=keys)


def _ends(rows: Sequence[Row], most: int) -> list[Row]:
    """The first and the last rows."""
    if len(rows) <= most:
        return list(rows)
    return [*rows[: most // 2], *rows[len(rows) - most // 2 :]]


def _with_interval(summary: Row) -> str:
    unit, lower, upper = summary["unit"], summary["median_lower"], summary["median_upper"]
    text = quantity(summary["median"], unit)
    if lower is None:
        return text
    return f"{text} ({quantity(lower, unit)} to {quantity(upper, unit)})"


def _omissions(total: Row, machines: int, shown: int) -> str:
    parts = []
    outside = total["below"] + total["above"]
    if outside:
        parts.append(f"{outside:,} of the readings outside the picture")
    if shown < machines and machines > 1:
        parts.append(f"strips: the {shown // 2} fastest and slowest of {machines} machines")
    return "; ".join(parts)
