"""The plots of a report."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from datetime import UTC
from math import ceil, log10
from typing import Any

import numpy as np
from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.patches import PathPatch
from matplotlib.path import Path
from matplotlib.ticker import EngFormatter, FixedLocator, FuncFormatter, MaxNLocator
from numpy.typing import ArrayLike

from kongming.arrays import Floats
from kongming.quantities import per_cent
from kongming.web.formats import quantity
from kongming.web.svg import colour, new_axes, new_figure, to_svg

Row = Mapping[str, Any]

DOTS = 1200
"""Maximum number of readings that a timeline draws as dots, evenly chosen."""

SERIES_COLOURS = ("blue", "orange", "green")
"""Colours of the series of a plot, in order."""

SHADES = 8
"""Steps of the shades of a strip."""

_BASE, _BARS, _STRIP = 92.0, 80.0, 11.0
"""Pixels of a histogram: the base line of its bars, their height, and that of a strip."""

_WIDTH, _WIDE = 340.0, 640.0
_WIDE_FONT = 12.0
"""A wide figure is shown smaller than it is drawn."""
_DAY_S = 86400.0


def histogram(total: Row, machines: Sequence[Row], summary: Row) -> Markup:
    """Histogram of a type, with a strip of shades for each machine below, on the same axis."""
    edges = np.asarray(total["edges"], dtype=np.float64)
    counts = np.asarray(total["counts"], dtype=np.float64)
    bottom = _BASE + (_STRIP * len(machines) + 4.0 if machines else 4.0)
    figure = new_figure(_WIDTH, bottom + 24.0)
    # One pair of axes takes half the time of two: y is in pixels.
    axes = new_axes(figure, 78.0 if machines else 24.0, 8.0, 24.0, bottom)
    low, high = float(edges[0]), float(edges[-1])
    _limit(axes, low, high, bottom, 8.0)
    axes.yaxis.set_visible(False)
    axes.spines["bottom"].set_visible(False)
    heights = _BARS * counts / (counts.max() or 1.0)
    axes.stairs(
        _BASE - heights, edges, baseline=_BASE, fill=True, color=colour("bar"), clip_on=False
    )
    _segments(axes, [low], [_BASE], [high], [_BASE], "faint", width=1.0)
    inside = {p: low <= summary[p] <= high for p in ("median", "p5", "p95")}
    if inside["median"]:
        at = summary["median"]
        _segments(axes, [at], [_BASE], [at], [_BASE - _BARS - 4.0], "orange")
    marks = [summary[p] for p in ("p5", "p95") if inside[p]]
    tops, ends = [_BASE - 10.0] * len(marks), [_BASE + 4.0] * len(marks)
    _segments(axes, marks, tops, marks, ends, "mark")
    if machines:
        _strips(axes, edges, machines)
    axes.xaxis.set_major_locator(MaxNLocator(4, steps=[1, 2, 5, 10]))
    axes.xaxis.set_major_formatter(EngFormatter(unit=summary["unit"]))
    description = (
        f"Histogram of {summary['n']} readings from {quantity(float(edges[0]), summary['unit'])} "
        f"to {quantity(float(edges[-1]), summary['unit'])}, median "
        f"{quantity(summary['median'], summary['unit'])}"
    )
    return to_svg(figure, f"{summary['name']}: histogram", description)


def timeline(
    seconds: Floats, values: Floats, unit: str, name: str, segments: Sequence[tuple[int, int]]
) -> Markup:
    """Readings over time with a running median, or with the medians of ``segments`` (begin, end)
    between changes."""
    figure = new_figure(_WIDE, 190.0)
    axes = new_axes(figure, 70.0, 12.0, 14.0, 160.0)
    low, high = (float(q) for q in np.quantile(values, (0.005, 0.995)))
    margin = 0.08 * (high - low) or abs(low) * 0.01 or 1.0
    days = seconds / _DAY_S
    end = max(float(days[-1]), float(days[0]) + 1.0 / _DAY_S)
    _limit(axes, float(days[0]), end, low - margin, high + margin)
    _value_axis(axes, unit)
    shown = np.unique(np.linspace(0, len(values) - 1, min(DOTS, len(values))).astype(int))
    drawn = np.clip(values[shown], low - margin, high + margin)
    _dots(axes, days[shown], drawn, "bar", size=3.2, alpha=0.6)
    if segments:
        levels = [float(np.median(values[a:b])) for a, b in segments]
        begins = [float(days[a]) for a, _ in segments]
        ends = [float(days[b - 1]) for _, b in segments]
        _segments(axes, begins, levels, ends, levels, "orange")
        cuts = begins[1:]
        bottom, top = [low - margin] * len(cuts), [high + margin] * len(cuts)
        _segments(axes, cuts, bottom, cuts, top, "orange", width=1.0, dashed=True)
    else:
        parts = np.array_split(np.arange(len(values)), min(60, max(2, len(values) // 8)))
        axes.plot(
            [float(days[part].mean()) for part in parts],
            [float(np.median(values[part])) for part in parts],
            color=colour("orange"),
            linewidth=2.4,
            clip_on=False,
        )
    axes.xaxis_date(tz=UTC)
    axes.tick_params(labelsize=_WIDE_FONT)
    changes = f", {len(segments) - 1} changes of level" if segments else ""
    span = float(seconds[-1] - seconds[0])
    description = f"{len(values)} readings over {span / 3600.0:.1f} hours{changes}"
    return to_svg(figure, f"{name} over time", description, "wide")


def hours(seconds: Floats, values: Floats, unit: str, name: str) -> Markup:
    """Median and quartiles by hour of the day, UTC."""
    hour = ((seconds % _DAY_S) // 3600.0).astype(int)
    present = np.unique(hour)
    q1, median, q3 = np.array(
        [np.quantile(values[hour == h], (0.25, 0.5, 0.75)) for h in present.tolist()]
    ).T
    low, high = float(q1.min()), float(q3.max())
    margin = 0.08 * (high - low) or abs(low) * 0.01 or 1.0
    figure = new_figure(_WIDTH, 150.0)
    axes = new_axes(figure, 66.0, 8.0, 12.0, 124.0)
    _limit(axes, 0.0, 24.0, low - margin, high + margin)
    _value_axis(axes, unit)
    begins, ends = present + 0.07, present + 0.93
    _rectangles(axes, begins, ends, q1, q3, "blue", 0.45)
    _segments(axes, begins, median, ends, median, "orange")
    axes.xaxis.set_major_locator(FixedLocator([0, 6, 12, 18, 24]))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:02.0f} h"))
    slowest = int(present[np.argmax(median)])
    description = f"Median and quartiles by hour of the day (UTC); highest at {slowest:02d} h"
    return to_svg(figure, f"{name} by hour of the day", description)


def repetitions(rows: Sequence[tuple[str, Sequence[int | None], int]]) -> Markup:
    """Numbers of repetitions on a logarithmic axis, by name: a dot of its own colour for each
    precision, and a tick for the number that was measured."""
    bottom = 10.0 + 19.0 * len(rows)
    figure = new_figure(_WIDE, bottom + 24.0)
    axes = new_axes(figure, 190.0, 6.0, 24.0, bottom)
    numbers = [n for _, counts, measured in rows for n in (*counts, measured) if n]
    last = max(1.0, ceil(log10(max(numbers, default=10))))
    _limit(axes, 0.0, last, len(rows) - 0.5, -0.5)
    y = np.arange(len(rows))
    axes.xaxis.set_major_locator(FixedLocator(range(int(last) + 1)))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda power, _: f"{10**power:,.0f}"))
    axes.set_yticks(y, [_short(name, 28) for name, _, _ in rows])
    axes.tick_params(labelsize=_WIDE_FONT)
    axes.grid(visible=True)
    axes.spines["bottom"].set_visible(False)
    measured = np.log10([max(count, 1) for _, _, count in rows])
    _segments(axes, measured, y - 0.3, measured, y + 0.3, "mark")
    for k, column in enumerate(zip(*(counts for _, counts, _ in rows), strict=True)):
        points = [(log10(count), place) for place, count in enumerate(column) if count]
        x, places = np.array(points).reshape(-1, 2).T
        _dots(axes, x, places, SERIES_COLOURS[k % 3], size=9.0)
    description = "Repetitions needed by name; the table below has the numbers"
    return to_svg(figure, "Repetitions needed", description, "wide")


def gains(rows: Sequence[Row]) -> Markup:
    """Gain of dropping the slowest machines, by their number: of surrogates and of programs."""
    lines = [
        [(row["drop"], row[key]) for row in rows if row[key] is not None]
        for key in ("gain_pct", "program_gain_pct")
    ]
    values = [value for points in lines for _, value in points]
    low, high = min(*values, 0.0), max(*values, 1.0)
    margin = 0.08 * (high - low)
    figure = new_figure(_WIDTH, 160.0)
    axes = new_axes(figure, 48.0, 10.0, 18.0, 124.0)
    most = max(int(row["drop"]) for row in rows)
    _limit(axes, 0.0, float(most), low - margin * (low < 0.0), high + margin)
    axes.yaxis.set_major_locator(MaxNLocator(4, steps=[1, 2, 5, 10]))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: per_cent(value, "g")))
    axes.grid(visible=True, axis="y")
    for name, points in zip(SERIES_COLOURS, lines, strict=False):
        if points:
            x, y = np.array([(0.0, 0.0), *points]).T
            axes.plot(x, y, color=colour(name), linewidth=2.0, clip_on=False)
            _dots(axes, x[1:], y[1:], name, size=7.0)
    axes.xaxis.set_major_locator(MaxNLocator(8, integer=True))
    axes.set_xlabel("machines dropped", color=colour("faint"))
    description = "Share of a parallel step that is saved, over the number of machines dropped"
    return to_svg(figure, "Gain of dropping the slowest", description)


def _limit(axes: Axes, left: float, right: float, bottom: float, top: float) -> None:
    axes.set_xlim(left, right if right != left else left + 1.0)
    axes.set_ylim(bottom, top)


def _value_axis(axes: Axes, unit: str) -> None:
    axes.yaxis.set_major_locator(MaxNLocator(4, steps=[1, 2, 5, 10]))
    axes.yaxis.set_major_formatter(EngFormatter(unit=unit))
    axes.grid(visible=True, axis="y")


def _strips(axes: Axes, edges: Floats, machines: Sequence[Row]) -> None:
    """A row of shaded cells for each machine; the darkest is its fullest bar."""
    counts = np.array([row["counts"] for row in machines], dtype=np.float64)
    most = counts.max(axis=1, keepdims=True)
    shades = np.ceil(SHADES * counts / np.where(most > 0.0, most, 1.0)).astype(int)
    for shade in range(1, SHADES + 1):
        place, bar = np.nonzero(shades == shade)
        alpha = 0.12 + 0.88 * shade / SHADES
        y = _BASE + 6.0 + _STRIP * place
        _rectangles(axes, edges[bar], edges[bar + 1], y, y + 0.8 * _STRIP, "blue", alpha)
    for k, row in enumerate(machines):
        axes.text(
            -0.02,
            _BASE + 6.0 + _STRIP * (k + 0.4),
            _short(row["machine"], 12),
            transform=axes.get_yaxis_transform(),
            fontsize=9.0,
            horizontalalignment="right",
            verticalalignment="center",
        )


# Many shapes are one path of many parts: an element for each would be ten times as large.

_LINE = (int(Path.MOVETO), int(Path.LINETO))
_RECTANGLE = (*_LINE, int(Path.LINETO), int(Path.LINETO), int(Path.CLOSEPOLY))


def _rectangles(
    axes: Axes, x0: ArrayLike, x1: ArrayLike, y0: ArrayLike, y1: ArrayLike, name: str, alpha: float
) -> None:
    corners = np.array([[x0, y0], [x1, y0], [x1, y1], [x0, y1], [x0, y0]], dtype=np.float64)
    _draw(axes, corners, _RECTANGLE, facecolor=colour(name), edgecolor="none", alpha=alpha)


def _segments(
    axes: Axes,
    x0: ArrayLike,
    y0: ArrayLike,
    x1: ArrayLike,
    y1: ArrayLike,
    name: str,
    *,
    width: float = 2.0,
    dashed: bool = False,
) -> None:
    ends = np.array([[x0, y0], [x1, y1]], dtype=np.float64)
    style = (0, (3, 3)) if dashed else "solid"
    _draw(
        axes,
        ends,
        _LINE,
        fill=False,
        edgecolor=colour(name),
        linewidth=width,
        linestyle=style,
    )


def _dots(
    axes: Axes, x: ArrayLike, y: ArrayLike, name: str, *, size: float, alpha: float = 1.0
) -> None:
    """Round ends of lines without length."""
    ends = np.array([[x, y], [x, y]], dtype=np.float64)
    _draw(
        axes,
        ends,
        _LINE,
        fill=False,
        edgecolor=colour(name),
        linewidth=size,
        capstyle="round",
        alpha=alpha,
    )


def _draw(axes: Axes, corners: Floats, codes: Sequence[int], **style: Any) -> None:
    """Draw shapes whose ``corners`` are (corner, x or y, shape)."""
    count = corners.shape[2]
    if count:
        vertices = corners.transpose(2, 0, 1).reshape(-1, 2)
        path = Path(vertices, list(itertools.chain.from_iterable([codes] * count)))
        axes.add_artist(PathPatch(path, clip_on=False, **style))


def _short(text: str, most: int) -> str:
    return text if len(text) <= most else f"…{text[-(most - 1) :]}"
