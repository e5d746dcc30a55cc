"""Plot of how much each application suffers against how much it inflicts."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from kongming.evaluate.figures import theme as themes
from kongming.evaluate.figures.theme import Theme
from kongming.records.errors import InputError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.transforms import Bbox

_AROUND = (
    *((7, 0, "left", "center"), (-7, 0, "right", "center")),
    *((0, 7, "center", "bottom"), (0, -7, "center", "top")),
    *((6, 6, "left", "bottom"), (6, -6, "left", "top")),
    *((-6, 6, "right", "bottom"), (-6, -6, "right", "top")),
    *((16, 12, "left", "bottom"), (16, -12, "left", "top")),
    *((-16, 12, "right", "bottom"), (-16, -12, "right", "top")),
    *((0, 22, "center", "bottom"), (0, -22, "center", "top")),
    *((30, 24, "left", "bottom"), (30, -24, "left", "top")),
    *((-30, 24, "right", "bottom"), (-30, -24, "right", "top")),
)
"""Places for a label around its point, nearest first: offset in points, alignment."""


def sensitivity_pressure(
    sensitivity: Mapping[str, float],
    pressure: Mapping[str, float],
    folder: Path,
    *,
    name: str = "sensitivity-pressure",
) -> tuple[Path, ...]:
    """A labelled point for each application that is in both.

    ``sensitivity`` is its worst slowdown under an inducer, ``pressure`` the mean slowdown that it
    inflicts on its neighbours (``evaluate.pressures``).

    Raises:
        InputError: no application is in both.
        MissingExtraError: matplotlib is not installed.
    """
    apps = [app for app in sensitivity if app in pressure]
    if not apps:
        raise InputError(
            "no application has both.",
            field="sensitivity, pressure",
            allowed="the same names in both",
        )
    points = {app: (pressure[app], sensitivity[app]) for app in apps}
    return themes.write(lambda theme: _draw(theme, points), folder, name)


def _draw(theme: Theme, points: Mapping[str, tuple[float, float]]) -> Figure:
    figure = themes.new_figure(7.2, 5.2)
    axes = figure.add_subplot()
    x, y = np.array(list(points.values())).T
    axes.scatter(x, y, s=34, color=theme.lines[0], zorder=3)
    axes.axvline(1.0, color=theme.faint, linewidth=0.9, linestyle=(0, (4, 3)), zorder=1)
    axes.axhline(1.0, color=theme.faint, linewidth=0.9, linestyle=(0, (4, 3)), zorder=1)
    axes.set_xlim(*_limits(x))
    axes.set_ylim(*_limits(y))
    axes.grid(visible=True)
    axes.set_xlabel("pressure: mean slowdown of its neighbours (runtime / solo runtime)")
    axes.set_ylabel("sensitivity: worst slowdown under an inducer\n(runtime / solo runtime)")
    _label(axes, theme, points)
    return figure


def _limits(values: Any) -> tuple[float, float]:
    low, high = min(float(np.min(values)), 1.0), max(float(np.max(values)), 1.0)
    margin = 0.08 * max(high - low, 0.05)
    return low - margin, high + margin


def _label(axes: Axes, theme: Theme, points: Mapping[str, tuple[float, float]]) -> None:
    """Names next to their points, each at the nearest place where it covers nothing."""
    from matplotlib.transforms import Bbox

    figure = axes.get_figure(root=True)
    assert figure is not None
    figure.draw_without_rendering()
    renderer = figure.canvas.get_renderer()  # type: ignore[attr-defined]
    frame = axes.get_window_extent(renderer)
    pixels = axes.transData.transform(np.array(list(points.values())))
    half = 4.0 * figure.dpi / 72.0
    dots = [Bbox.from_extents(px - half, py - half, px + half, py + half) for px, py in pixels]
    left, bottom = axes.transData.transform((1.0, 1.0))
    lines = [
        Bbox.from_extents(left - 1.0, frame.y0, left + 1.0, frame.y1),
        Bbox.from_extents(frame.x0, bottom - 1.0, frame.x1, bottom + 1.0),
    ]
    taken = [*dots, *lines]
    for (app, point), own in zip(points.items(), dots, strict=True):
        best: tuple[float, Bbox, tuple[Any, ...]] | None = None
        for place in _AROUND:
            box = _extent(axes, renderer, app, point, place)
            cost = sum(_overlap(box, other) for other in taken if other is not own)
            cost += box.width * box.height - _overlap(box, frame)
            if best is None or cost < best[0]:
                best = (cost, box, place)
            if cost == 0.0:
                break
        assert best is not None
        taken.append(best[1])
        far = abs(best[2][0]) > 10 or abs(best[2][1]) > 10
        text = _annotate(axes, app, point, best[2])
        text.set_color(theme.ink)
        if far:
            axes.annotate(
                "",
                point,
                xytext=best[2][:2],
                textcoords="offset points",
                arrowprops={"arrowstyle": "-", "color": theme.faint, "linewidth": 0.8},
            )


def _annotate(axes: Axes, app: str, point: tuple[float, float], place: tuple[Any, ...]) -> Any:
    dx, dy, horizontal, vertical = place
    return axes.annotate(
        app,
        point,
        xytext=(dx, dy),
        textcoords="offset points",
        ha=horizontal,
        va=vertical,
        fontsize=9.0,
        zorder=4,
    )


def _extent(
    axes: Axes, renderer: Any, app: str, point: tuple[float, float], place: tuple[Any, ...]
) -> Bbox:
    text = _annotate(axes, app, point, place)
    box: Bbox = text.get_window_extent(renderer)
    text.remove()
    return box


def _overlap(first: Bbox, second: Bbox) -> float:
    width = min(first.x1, second.x1) - max(first.x0, second.x0)
    height = min(first.y1, second.y1) - max(first.y0, second.y0)
    return float(width * height) if width > 0.0 and height > 0.0 else 0.0
