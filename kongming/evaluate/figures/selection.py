"""Selections for each application: the paper's Figures 4 and 5.

Rows are applications, columns surrogates (selected or not, or their weight) and inducers (how many
observations of each are trained on).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from kongming.evaluate.cases import Floats
from kongming.evaluate.figures import theme as themes
from kongming.evaluate.figures.theme import Theme
from kongming.records.errors import InputError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Selections = Mapping[str, Mapping[str, Any]]
"""By application: {"surrogates": [NAME...], "observations": {INDUCER: count}}, or, of a model that
selects nothing, {"weights": {SURROGATE: weight}}."""

_CELL = 0.26
"""Inches."""

_LEAST_WIDTH = 5.5
"""Inches: room for the titles."""


def selection(
    selections: Selections, folder: Path, *, model: str, name: str | None = None
) -> tuple[Path, ...]:
    """The matrices of one model; ``name`` of the files is by default "selection-MODEL".

    Names that no application has selected are left out. Weights are shown by their share of
    the application's largest one (in size, whatever the sign).

    Raises:
        InputError: there is nothing to show.
        MissingExtraError: matplotlib is not installed.
    """
    if not selections or not any(_names(selections, key) for key in _KEYS):
        raise InputError(
            "holds nothing that was selected.",
            field="selections",
            allowed="surrogates, observations or weights of one application or more",
        )
    file = name or f"selection-{model.lower().replace('.', '-')}"
    return themes.write(lambda theme: _draw(theme, selections, model), folder, file)


_KEYS = ("surrogates", "weights", "observations")


def _draw(theme: Theme, selections: Selections, model: str) -> Figure:
    apps = list(selections)
    panels = []
    chosen, weighed = _names(selections, "surrogates"), _names(selections, "weights")
    observed = _names(selections, "observations")
    if chosen:
        panels.append(("surrogates selected", chosen, _marks(selections, chosen), "marks"))
    if weighed:
        heaviest = np.argsort(-np.sum(_weights(selections, weighed), axis=0), kind="stable")
        weighed = [weighed[k] for k in heaviest]
        panels.append(
            ("weight of each surrogate", weighed, _weights(selections, weighed), "shares")
        )
    if observed:
        counts = _counts(selections, observed)
        panels.append(("observations of each inducer trained on", observed, counts, "counts"))
    longest = max(len(column) for _, columns, _, _ in panels for column in columns)
    widest = max(len(columns) for _, columns, _, _ in panels)
    label = 0.085 * max(map(len, apps))
    foot = 0.085 * longest
    height = len(panels) * (len(apps) * _CELL + foot + 0.7)
    bar = 1.0 if weighed else 0.0
    width = max(widest * _CELL + label + 0.9 + bar, _LEAST_WIDTH)
    figure = themes.new_figure(width, height)
    all_axes = np.atleast_1d(np.asarray(figure.subplots(len(panels), 1)))
    for axes, (what, columns, cells, how) in zip(all_axes, panels, strict=True):
        _matrix(axes, theme, apps, columns, cells, how)
        axes.set_anchor("W")
        themes.title(axes, f"{model}: {what}")
    return figure


def _matrix(
    axes: Axes,
    theme: Theme,
    apps: Sequence[str],
    columns: Sequence[str],
    cells: Floats,
    how: str,
) -> None:
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import LinearSegmentedColormap, Normalize

    ramp = LinearSegmentedColormap.from_list("ramp", theme.ramp)
    top = float(np.nanmax(cells)) if how == "counts" else 1.0
    scale = Normalize(0.0, max(top, 1e-12))
    shades = np.array([[ramp(scale(value)) for value in row] for row in cells])
    if how == "marks":
        shades = np.array([[ramp(0.72) if value else ramp(0.0) for value in row] for row in cells])
    axes.imshow(shades, aspect="equal", interpolation="nearest")
    if how == "shares":
        figure = axes.get_figure(root=True)
        assert figure is not None
        bar = figure.colorbar(ScalarMappable(scale, ramp), ax=axes, fraction=0.03, pad=0.02)
        bar.set_label("share of the largest weight\nof the application")
        bar.outline.set_visible(False)
    if how == "counts":
        for y, row in enumerate(cells):
            for x, value in enumerate(row):
                if value:
                    colour = themes.on(tuple(shades[y, x]))
                    axes.text(
                        x, y, f"{value:g}", ha="center", va="center", fontsize=7.5, color=colour
                    )
    axes.set_xticks(np.arange(len(columns)), labels=list(columns), rotation=90, fontsize=8.5)
    axes.set_yticks(np.arange(len(apps)), labels=list(apps), fontsize=8.5)
    axes.set_xticks(np.arange(len(columns) + 1) - 0.5, minor=True)
    axes.set_yticks(np.arange(len(apps) + 1) - 0.5, minor=True)
    axes.grid(visible=True, which="minor", color=theme.page, linewidth=1.6)
    axes.tick_params(which="both", length=0)
    for side in axes.spines.values():
        side.set_visible(False)


def _names(selections: Selections, key: str) -> list[str]:
    """Names with anything to show, those that the most applications have first."""
    counts: dict[str, int] = {}
    for chosen in selections.values():
        values = chosen.get(key) or {}
        present = (
            [name for name, value in values.items() if value]
            if isinstance(values, Mapping)
            else list(values)
        )
        for name in present:
            counts[name] = counts.get(name, 0) + 1
    return sorted(counts, key=lambda name: (-counts[name], name))


def _marks(selections: Selections, columns: Sequence[str]) -> Floats:
    return np.array(
        [
            [float(name in (chosen.get("surrogates") or ())) for name in columns]
            for chosen in selections.values()
        ]
    )


def _counts(selections: Selections, columns: Sequence[str]) -> Floats:
    return np.array(
        [
            [float((chosen.get("observations") or {}).get(name, 0)) for name in columns]
            for chosen in selections.values()
        ]
    )


def _weights(selections: Selections, columns: Sequence[str]) -> Floats:
    sizes = np.array(
        [
            [abs(float((chosen.get("weights") or {}).get(name, 0.0))) for name in columns]
            for chosen in selections.values()
        ]
    )
    return np.asarray(sizes / np.maximum(np.max(sizes, axis=1, keepdims=True), 1e-12))
