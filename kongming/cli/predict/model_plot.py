"""Sensitivity curves as an image; matplotlib is imported only to draw it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from kongming.evaluate.figures import theme as themes
from kongming.evaluate.figures.theme import Theme

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from kongming.learning.sensitivity import Curve

_PANELS = (("family", "one resource family"), ("surrogate", "one surrogate"))
_DASHES = ("-", (0, (5, 2)), (0, (1.5, 1.5)))
_LEAST = 1.1
"""Minimum end of the axes: a smaller one would exaggerate small slowdowns."""
_FINE = (1.0, 1.05, 1.1, 1.2, 1.3, 1.5, 1.75, 2.0, 2.5, 3.0, 4.0, 6.0, 8.0)
_COARSE = (1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 16.0, 32.0, 64.0)


def draw(path: Path, title: str, curves: Sequence[Curve]) -> None:
    """Write an SVG or PNG, by the suffix of ``path``. The background is opaque, so that it is
    readable on light and dark pages.

    Raises:
        MissingExtraError: matplotlib is not installed.
    """
    themes.write_one(lambda theme: _figure(theme, title, curves), path)


def _figure(theme: Theme, title: str, curves: Sequence[Curve]) -> Figure:
    panels = [(kind, what) for kind, what in _PANELS if any(c.kind == kind for c in curves)]
    figure = themes.new_figure(4.9 * len(panels) + 0.4, 4.9)
    figure.suptitle(title, x=0.01, ha="left", fontweight="bold")
    for k, (kind, what) in enumerate(panels):
        axes = figure.add_subplot(1, len(panels), k + 1)
        _panel(axes, theme, what, [curve for curve in curves if curve.kind == kind])
        top = max(max(float(curve.slowdown.max()) for curve in curves), _LEAST)
        low = min(min(float(curve.slowdown.min()) for curve in curves), 1.0)
        margin = 0.04 * (top - low)
        axes.set_ylim(low - margin, top + margin)
        if k == 0:
            axes.set_ylabel("predicted slowdown (runtime / solo runtime)")
    return figure


def _panel(axes: Axes, theme: Theme, what: str, curves: Sequence[Curve]) -> None:
    from matplotlib.ticker import NullLocator

    axes.axhline(1.0, color=theme.faint, linewidth=0.9, linestyle=(0, (4, 3)), zorder=1)
    for k, curve in enumerate(curves):
        axes.plot(
            curve.load,
            curve.slowdown,
            color=theme.lines[k % len(theme.lines)],
            linestyle=_DASHES[k % len(_DASHES)],
            linewidth=1.9,
            label=f"{curve.name} ({curve.slowdown[-1]:.2f})",
        )
        axes.plot(
            curve.load[-1],
            curve.slowdown[-1],
            "o",
            color=theme.lines[k % len(theme.lines)],
            markersize=4,
        )
    most = max(max(float(curve.load[-1]) for curve in curves), _LEAST)
    axes.set_xscale("log")
    axes.set_xlim(most**-0.03, most**1.04)
    shown = _ticks(most)
    axes.set_xticks(shown, labels=[f"{value:g}" for value in shown])
    axes.xaxis.set_minor_locator(NullLocator())
    axes.grid(visible=True)
    axes.set_xlabel(f"slowdown of {what}, others idle")
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.17), ncols=2, fontsize=8.5)


def _ticks(most: float) -> list[float]:
    """Return round numbers from 1 to ``most``, at most seven."""
    for steps in (_FINE, _COARSE):
        ticks = [value for value in steps if value <= most]
        if len(ticks) <= 7:
            return ticks
    return [4.0**k for k in range(int(math.log(most, 4.0)) + 1)]
