"""Slowdown of each application next to each other one: measured, and as predicted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from kongming.evaluate.cases import Floats
from kongming.evaluate.figures import theme as themes
from kongming.evaluate.figures.theme import Theme
from kongming.learning.registry import AUTO
from kongming.records.errors import UnknownNameError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MOST_NUMBERS = 14
"""Up to so many applications the cells show their number."""


def heat_map(
    document: Mapping[str, Any], folder: Path, *, model: str = AUTO, name: str = "heat-map"
) -> tuple[Path, ...]:
    """Draw the heat map of a document of ``score_pairs``. Both matrices share their colours.

    Raises:
        UnknownNameError: the document has no such model.
        MissingExtraError: matplotlib is not installed.
    """
    if model not in document["geomean_pct"]:
        raise UnknownNameError("model", model, document["geomean_pct"])
    apps = list(document["apps"])
    partners = sorted({pair["neighbour"] for pair in document["pairs"]} | set(apps))
    measured = np.full((len(apps), len(partners)), np.nan)
    predicted = np.full_like(measured, np.nan)
    for pair in document["pairs"]:
        at = apps.index(pair["app"]), partners.index(pair["neighbour"])
        measured[at] = pair["slowdown"]
        prediction = pair["predictions"].get(model)
        if prediction is not None:
            # value / measured is free of the scale, so this is the predicted slowdown.
            predicted[at] = pair["slowdown"] * prediction["value"] / pair["measured"]
    both = (("measured", measured), (f"predicted by {model}", predicted))
    return themes.write(lambda theme: _draw(theme, apps, partners, both), folder, name)


def _draw(
    theme: Theme,
    apps: Sequence[str],
    partners: Sequence[str],
    both: Sequence[tuple[str, Floats]],
) -> Figure:
    from matplotlib.colors import LinearSegmentedColormap, LogNorm

    cell = 0.42 if len(partners) <= MOST_NUMBERS else 0.3
    label = 0.085 * max(map(len, (*apps, *partners)))
    # Room for the words next to few cells.
    width = max(2 * len(partners) * cell + label + 2.0, 6.5)
    height = max(len(apps) * cell + label + 1.3, 3.2)
    figure = themes.new_figure(width, height)
    all_axes = figure.subplots(1, 2, sharey=True)
    ramp = LinearSegmentedColormap.from_list("ramp", theme.ramp)
    values = np.concatenate([cells[np.isfinite(cells)] for _, cells in both])
    low, high = float(np.min(values)), float(np.max(values))
    scale = LogNorm(low, max(high, low * 1.01))
    for axes, (what, cells) in zip(all_axes, both, strict=True):
        picture = axes.imshow(
            np.ma.masked_invalid(cells),
            cmap=ramp,
            norm=scale,
            interpolation="nearest",
            aspect="auto",
        )
        if len(partners) <= MOST_NUMBERS:
            for y, x in zip(*np.nonzero(np.isfinite(cells)), strict=True):
                colour = themes.on(ramp(scale(cells[y, x])))
                axes.text(
                    *(x, y, f"{cells[y, x]:.2f}"),
                    ha="center",
                    va="center",
                    fontsize=7.5,
                    color=colour,
                )
        axes.set_xticks(np.arange(len(partners)), labels=list(partners), rotation=90)
        axes.set_yticks(np.arange(len(apps)), labels=list(apps))
        axes.tick_params(length=0, labelsize=8.5)
        axes.set_xlabel("neighbour")
        for side in axes.spines.values():
            side.set_visible(False)
        themes.title(axes, what)
    all_axes[0].set_ylabel("application")
    bar = figure.colorbar(picture, ax=list(all_axes), fraction=0.03, pad=0.02)
    ticks = _ticks(low, high)
    bar.set_ticks(ticks, labels=[f"{tick:g}" for tick in ticks])
    bar.minorticks_off()
    bar.set_label("slowdown (runtime / solo runtime)")
    bar.outline.set_visible(False)
    return figure


def _ticks(low: float, high: float) -> list[float]:
    """Round slowdowns within the range, about five of them."""
    for step in (0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 50.0):
        first = int(np.ceil(low / step))
        ticks = [round(step * k, 2) for k in range(first, int(np.floor(high / step)) + 1)]
        if len(ticks) <= 7:
            return ticks or [round(low, 2)]
    return [round(low, 2), round(high, 2)]
