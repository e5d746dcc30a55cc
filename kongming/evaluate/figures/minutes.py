"""Error against machine-minutes: n profiles against n x n pairs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from kongming.evaluate.figures import theme as themes
from kongming.evaluate.figures.theme import Theme
from kongming.evaluate.trivial import AWAKE, BUBBLE_UP, PAIRMEAN, ROWCOL, SOLO
from kongming.learning.registry import AUTO
from kongming.records.errors import InputError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

_POINTS = (SOLO, AWAKE, BUBBLE_UP, AUTO, PAIRMEAN)
"""Predictors at the one cost that they have; the others have a curve."""

_PROGRAMS = (2, 40)
"""Range of the number of programs."""


def error_minutes(
    document: Mapping[str, Any], folder: Path, *, name: str = "error-minutes"
) -> tuple[Path, ...]:
    """Left: mean absolute log error against minutes of measuring, for the programs of an
    evaluation's document of pairs. Right: the minutes for any number of programs.

    Raises:
        InputError: the document has no minutes.
        MissingExtraError: matplotlib is not installed.
    """
    minutes = {model: value for model, value in document["minutes"].items() if value}
    if ROWCOL not in minutes or SOLO not in minutes:
        raise InputError("has no minutes of measuring.", field="minutes")
    return themes.write(lambda theme: _draw(theme, document, minutes), folder, name)


def _draw(theme: Theme, document: Mapping[str, Any], minutes: Mapping[str, float]) -> Figure:
    figure = themes.new_figure(10.4, 4.6)
    left, right = figure.subplots(1, 2)
    _errors(left, theme, document, minutes)
    _programs(right, theme, len(document["apps"]), minutes)
    return figure


def _errors(
    axes: Axes, theme: Theme, document: Mapping[str, Any], minutes: Mapping[str, float]
) -> None:
    curves: Mapping[str, Sequence[Sequence[float]]] = document["measuring"]
    for k, (model, points) in enumerate(curves.items()):
        x, y = np.array(points, dtype=np.float64).T
        axes.plot(x, y, color=theme.lines[k], marker="o", markersize=3.5, label=model)
    for model in _POINTS:
        error = document["all"].get(model, {}).get("mean_abs_log_pct")
        if error is not None and model in minutes:
            bold = "bold" if model == AUTO else "normal"
            axes.scatter([minutes[model]], [error], s=36, color=theme.ink, zorder=3)
            axes.annotate(
                model,
                (minutes[model], error),
                xytext=(6, 5),
                textcoords="offset points",
                fontsize=9.0,
                fontweight=bold,
            )
    truth = document["truth"]["mean_abs_log_pct"]
    if truth is not None:
        axes.axhline(truth, color=theme.faint, linewidth=1.0, linestyle=(0, (4, 3)), label="truth")
    axes.set_xscale("log")
    _plain_numbers(axes.xaxis)
    axes.margins(x=0.12)
    axes.set_ylim(bottom=0.0)
    axes.grid(visible=True)
    axes.set_xlabel(f"minutes of measuring, {len(document['apps'])} programs")
    axes.set_ylabel("mean |log error| (%)")
    # Without repeats there is no truth, and with a pair each no curve.
    if axes.get_legend_handles_labels()[0]:
        axes.legend(fontsize=9.0)


def _plain_numbers(axis: Axis) -> None:
    """Label a logarithmic axis at 1, 2 and 5 with plain numbers."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    axis.set_major_locator(LogLocator(base=10.0, subs=(1.0, 2.0, 5.0), numticks=40))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_minor_formatter(NullFormatter())


def _programs(axes: Axes, theme: Theme, apps: int, minutes: Mapping[str, float]) -> None:
    n = np.arange(_PROGRAMS[0], _PROGRAMS[1] + 1)
    for k, model in enumerate((AUTO, BUBBLE_UP, SOLO)):
        if model in minutes:
            label = f"n profiles: {model}"
            axes.plot(n, minutes[model] * n / apps, color=theme.lines[k + 3], label=label)
    pairs = minutes[ROWCOL] * n * (n - 1) / (apps * (apps - 1))
    axes.plot(n, pairs, color=theme.ink, linewidth=2.0, label="n x n pairs")
    axes.set_xscale("log")
    axes.set_yscale("log")
    _plain_numbers(axes.xaxis)
    _plain_numbers(axes.yaxis)
    axes.grid(visible=True)
    axes.set_xlabel("programs")
    axes.set_ylabel("minutes of measuring")
    axes.legend(fontsize=9.0)
