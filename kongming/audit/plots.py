"""The plots of a report: SVG that takes its colours from the page, so that one drawing serves light
and dark. Each has a title and a description for those who cannot see it."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from math import ceil, floor, log10
from typing import Any

import numpy as np

from kongming.audit.markup import Markup, quantity, tag
from kongming.dataset import Floats

__all__ = ["POINTS", "dots", "gains", "histogram", "hours", "timeline"]

Row = Mapping[str, Any]

POINTS = 1200
"""A timeline shows so many readings at most, evenly chosen; its lines are of all of them."""

_WIDTH = 340.0
_LEFT, _RIGHT = 10.0, 10.0


def histogram(whole: Row, machines: Sequence[Row], summary: Row) -> Markup:
    """Of a type, with a strip of shades for each machine below, on the same axis."""
    edges = np.asarray(whole["edges"], dtype=np.float64)
    counts = np.asarray(whole["counts"], dtype=np.float64)
    unit = summary["unit"]
    left = 78.0 if machines else _LEFT
    plain, strip = 92.0, 11.0
    height = plain + 24.0 + (strip * len(machines) + 8.0 if machines else 0.0)
    x = _scale(float(edges[0]), float(edges[-1]), left, _WIDTH - _RIGHT)
    top = counts.max() or 1.0
    drawn: list[Markup] = []
    for low, high, count in zip(edges[:-1], edges[1:], counts, strict=True):
        tall = (plain - 12.0) * count / top
        drawn.append(
            tag(
                "rect",
                tag("title", f"{quantity(low, unit)} to {quantity(high, unit)}: {count:.0f}"),
                class_="bar",
                x=x(low),
                y=plain - tall,
                width=max(0.6, x(high) - x(low) - 0.6),
                height=tall,
            )
        )
    drawn.append(_line(left, plain, _WIDTH - _RIGHT, plain, "axis"))
    inside = edges[0] <= summary["median"] <= edges[-1]
    if inside:
        drawn.append(_line(x(summary["median"]), 4.0, x(summary["median"]), plain, "median"))
    for p in ("p5", "p95"):
        if edges[0] <= summary[p] <= edges[-1]:
            drawn.append(_line(x(summary[p]), plain - 10.0, x(summary[p]), plain + 4.0, "mark"))
    base = plain + 8.0
    for k, row in enumerate(machines):
        y = base + k * strip
        own = np.asarray(row["counts"], dtype=np.float64)
        most = own.max() or 1.0
        cells = [tag("title", f"{row['machine']}: {own.sum():.0f} readings")]
        cells += [
            tag(
                "rect",
                class_="shade",
                x=x(low),
                y=y,
                width=max(0.6, x(high) - x(low)),
                height=strip - 2.0,
                fill_opacity=round(0.12 + 0.88 * float(count / most), 3),
            )
            for low, high, count in zip(edges[:-1], edges[1:], own, strict=True)
            if count
        ]
        label = tag(
            "text", _short(row["machine"]), class_="small", x=left - 5.0, y=y + 8.0,
            text_anchor="end",
        )  # fmt: skip
        drawn.append(tag("g", *cells, label))
    low_text, high_text = quantity(float(edges[0]), unit), quantity(float(edges[-1]), unit)
    y = height - 4.0
    drawn.append(tag("text", low_text, x=left, y=y))
    drawn.append(tag("text", high_text, x=_WIDTH - _RIGHT, y=y, text_anchor="end"))
    words = (
        f"Histogram of {summary['n']} readings from {low_text} to {high_text}, median "
        f"{quantity(summary['median'], unit)}"
    )
    return _svg(_WIDTH, height, f"{summary['name']}: histogram", words, drawn)


def timeline(
    seconds: Floats, values: Floats, unit: str, name: str, levels: Sequence[tuple[int, int]]
) -> Markup:
    """Readings over time; a running median, or the medians of ``levels`` (begin, end) where it
    changed."""
    wide, tall, left, bottom = 640.0, 190.0, 64.0, 164.0
    low, high = (float(q) for q in np.quantile(values, (0.005, 0.995)))
    margin = 0.08 * (high - low) or abs(low) * 0.01 or 1.0
    low, high = low - margin, high + margin
    x = _scale(float(seconds[0]), max(float(seconds[-1]), float(seconds[0]) + 1.0), left, wide - 14)
    y = _scale(low, high, bottom, 12.0)
    drawn: list[Markup] = []
    for value in _ticks(low, high, 4):
        drawn.append(_line(left, y(value), wide - 14.0, y(value), "grid"))
        drawn.append(
            tag("text", quantity(value, unit), x=left - 6.0, y=y(value) + 3.5, text_anchor="end")
        )
    shown = np.unique(np.linspace(0, len(values) - 1, min(POINTS, len(values))).astype(int))
    # One path of dots of no length is a tenth of the size of as many circles.
    dots = "".join(
        f"M{x(seconds[k]):.1f} {y(min(max(values[k], low), high)):.1f}h0" for k in shown.tolist()
    )
    drawn.append(tag("path", class_="points", d=dots))
    if levels:
        for begin, end in levels:
            middle = y(float(np.median(values[begin:end])))
            drawn.append(
                _line(x(float(seconds[begin])), middle, x(float(seconds[end - 1])), middle, "level")
            )
        for begin, _ in levels[1:]:
            at = x(float(seconds[begin]))
            drawn.append(_line(at, 12.0, at, bottom, "cut"))
    else:
        parts = np.array_split(np.arange(len(values)), min(60, max(2, len(values) // 8)))
        way = " ".join(
            f"{x(float(seconds[part].mean())):.1f},{y(float(np.median(values[part]))):.1f}"
            for part in parts
            if len(part)
        )
        drawn.append(tag("polyline", class_="level", points=way))
    drawn.append(_line(left, bottom, wide - 14.0, bottom, "axis"))
    span = float(seconds[-1] - seconds[0])
    form = "%H:%M" if span < 86400.0 else "%d %b %H:%M" if span < 10 * 86400.0 else "%d %b"
    for k, share in enumerate((0.0, 0.5, 1.0)):
        at = float(seconds[0]) + share * span
        anchor = ("start", "middle", "end")[k]
        text = datetime.fromtimestamp(at, UTC).strftime(form)
        drawn.append(tag("text", text, x=x(at), y=tall - 8.0, text_anchor=anchor))
    changes = f", {len(levels) - 1} changes of level" if levels else ""
    words = f"{len(values)} readings over {span / 3600.0:.1f} hours{changes}"
    return _svg(wide, tall, f"{name} over time", words, drawn, class_="wide")


def hours(seconds: Floats, values: Floats, unit: str, name: str) -> Markup:
    """Median and quartiles by hour of the day, UTC."""
    tall, left, bottom = 150.0, 58.0, 124.0
    hour = ((seconds % 86400.0) // 3600.0).astype(int)
    found = [
        (h, *(float(q) for q in np.quantile(values[hour == h], (0.25, 0.5, 0.75))))
        for h in range(24)
        if (hour == h).any()
    ]
    low, high = min(one[1] for one in found), max(one[3] for one in found)
    margin = 0.08 * (high - low) or abs(low) * 0.01 or 1.0
    x, y = (
        _scale(0.0, 24.0, left, _WIDTH - _RIGHT),
        _scale(low - margin, high + margin, bottom, 8.0),
    )
    drawn = []
    for value in _ticks(low - margin, high + margin, 4):
        drawn.append(_line(left, y(value), _WIDTH - _RIGHT, y(value), "grid"))
        drawn.append(
            tag("text", quantity(value, unit), x=left - 5.0, y=y(value) + 3.5, text_anchor="end")
        )
    for h, q1, median, q3 in found:
        drawn.append(
            tag(
                "rect", class_="shade", fill_opacity=0.45, x=x(h) + 1.0, y=y(q3),
                width=x(1.0) - x(0.0) - 2.0, height=max(1.0, y(q1) - y(q3)),
            )
        )  # fmt: skip
        drawn.append(_line(x(h) + 1.0, y(median), x(h + 1.0) - 1.0, y(median), "level"))
    for h in (0, 6, 12, 18, 24):
        drawn.append(tag("text", f"{h:02d}", x=x(h), y=tall - 8.0, text_anchor="middle"))
    slowest = max(found, key=lambda one: one[2])[0]
    words = f"Median and quartiles by hour of the day (UTC); highest at {slowest:02d} h"
    return _svg(_WIDTH, tall, f"{name} by hour of the day", words, drawn)


def dots(
    rows: Sequence[tuple[str, Sequence[float | None], float]], legend: Sequence[str]
) -> Markup:
    """By name, counts on a logarithmic axis: one dot a series of ``legend``, a tick for how many
    were measured."""
    wide, left, step, top = 640.0, 190.0, 19.0, 26.0
    tall = top + step * len(rows) + 24.0
    every = [v for _, counts, own in rows for v in (*counts, own) if v]
    last = max(1.0, ceil(log10(max(every, default=10.0))))
    x = _scale(0.0, last, left, wide - 20.0)
    drawn = []
    for power in range(int(last) + 1):
        drawn.append(_line(x(power), top - 8.0, x(power), tall - 20.0, "grid"))
        drawn.append(tag("text", f"{10**power:,}", x=x(power), y=tall - 6.0, text_anchor="middle"))
    for k, text in enumerate(legend):
        at = left + 130.0 * k
        drawn.append(tag("circle", class_=f"dot{k % 3}", cx=at + 5.0, cy=9.0, r=4.5))
        drawn.append(tag("text", text, x=at + 14.0, y=13.0))
    for k, (name, counts, own) in enumerate(rows):
        y = top + step * k + 6.0
        drawn.append(tag("text", _short(name, 28), x=left - 10.0, y=y + 4.0, text_anchor="end"))
        drawn.append(_line(left, y, wide - 20.0, y, "grid"))
        drawn.append(_line(x(log10(max(own, 1.0))), y - 6, x(log10(max(own, 1.0))), y + 6, "mark"))
        for j, count in enumerate(counts):
            if count:
                drawn.append(
                    tag(
                        "circle",
                        tag("title", f"{name}, {legend[j]}: {count:,.0f}"),
                        class_=f"dot{j % 3}", cx=x(log10(count)), cy=y, r=4.5,
                    )
                )  # fmt: skip
    words = "Repetitions needed by name; the table below has the numbers"
    return _svg(wide, tall, "Repetitions needed", words, drawn, class_="wide")


def gains(rows: Sequence[Row]) -> Markup:
    """What dropping the slowest gains, over how many are dropped."""
    tall, left, bottom = 170.0, 44.0, 134.0
    lines = [
        (key, [(row["drop"], row[key]) for row in rows if row[key] is not None])
        for key in ("gain_pct", "program_gain_pct")
    ]
    every = [v for _, points in lines for _, v in points] + [0.0]
    low, high = min(every), max(*every, 1.0)
    margin = 0.08 * (high - low)
    x = _scale(0.0, max(float(row["drop"]) for row in rows), left, _WIDTH - 18.0)
    y = _scale(low - margin * (low < 0.0), high + margin, bottom, 22.0)
    drawn = []
    for value in _ticks(low, high, 4):
        drawn.append(_line(left, y(value), _WIDTH - 18.0, y(value), "grid"))
        drawn.append(tag("text", f"{value:g} %", x=left - 5.0, y=y(value) + 3.5, text_anchor="end"))
    for k, (key, points) in enumerate(lines):
        if not points:
            continue
        way = " ".join(f"{x(a):.1f},{y(b):.1f}" for a, b in [(0, 0.0), *points])
        drawn.append(tag("polyline", class_=f"way{k}", points=way))
        drawn += [tag("circle", class_=f"dot{k}", cx=x(a), cy=y(b), r=3.5) for a, b in points]
        drawn.append(tag("circle", class_=f"dot{k}", cx=left + 5.0 + 130.0 * k, cy=9.0, r=4.0))
        text = "programs" if key.startswith("program") else "surrogates"
        drawn.append(tag("text", text, x=left + 14.0 + 130.0 * k, y=13.0))
    most = max(int(row["drop"]) for row in rows)
    for count in sorted({0, *(row["drop"] for row in rows)}):
        if most <= 12 or count % ceil(most / 8) == 0:
            drawn.append(tag("text", count, x=x(count), y=bottom + 16.0, text_anchor="middle"))
    drawn.append(
        tag("text", "machines dropped", x=(left + _WIDTH) / 2, y=tall - 4.0, text_anchor="middle")
    )
    words = "Share of a parallel step that is saved, over the number of machines dropped"
    return _svg(_WIDTH, tall, "Gain of dropping the slowest", words, drawn)


def _svg(
    width: float, height: float, title: str, words: str, drawn: Sequence[Markup], class_: str = ""
) -> Markup:
    return tag(
        "svg",
        tag("title", f"{title}. {words}"),
        *drawn,
        viewBox=f"0 0 {width:g} {height:g}",
        role="img",
        aria_label=f"{title}. {words}",
        class_=f"plot {class_}".strip(),
    )


def _line(x1: float, y1: float, x2: float, y2: float, class_: str) -> Markup:
    return tag("line", class_=class_, x1=float(x1), y1=float(y1), x2=float(x2), y2=float(y2))


def _scale(low: float, high: float, begin: float, end: float) -> Any:
    size = (high - low) or 1.0
    return lambda value: begin + (float(value) - low) / size * (end - begin)


def _ticks(low: float, high: float, count: int) -> list[float]:
    """Round numbers within, about so many."""
    rough = (high - low) / count
    if rough <= 0.0:
        return [low]
    power = 10.0 ** floor(log10(rough))
    step = power * next(f for f in (1.0, 2.0, 5.0, 10.0) if f * power >= rough)
    first = ceil(low / step)
    found = itertools.takewhile(
        lambda value: value <= high, (k * step for k in itertools.count(first))
    )
    return list(found)


def _short(text: str, most: int = 12) -> str:
    return text if len(text) <= most else f"…{text[-(most - 1) :]}"
