"""Plot runtime and cost over the number of machines; matplotlib is imported on use."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from kongming.evaluate.figures import theme as themes
from kongming.evaluate.figures.theme import Theme

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from kongming.scale.decide.recommendation import Offer


def draw(path: Path, title: str, offers: Sequence[Offer], limit_s: float | None = None) -> None:
    """Write an SVG or PNG, by the suffix of ``path``: a line with its interval per machine type,
    and below it the cost if there are prices.

    Raises:
        MissingExtraError: matplotlib is not installed.
    """
    themes.write_one(lambda theme: _figure(theme, title, offers, limit_s), path)


def _figure(theme: Theme, title: str, offers: Sequence[Offer], limit_s: float | None) -> Figure:
    priced = any(offer.cost is not None for offer in offers)
    figure = themes.new_figure(6.4, 6.4 if priced else 4.2)
    figure.suptitle(title, x=0.01, ha="left", fontweight="bold")
    upper = figure.add_subplot(2 if priced else 1, 1, 1)
    lower = figure.add_subplot(2, 1, 2, sharex=upper) if priced else None
    for k, name in enumerate(dict.fromkeys(offer.machine_type for offer in offers)):
        own = [offer for offer in offers if offer.machine_type == name]
        colour = theme.lines[k % len(theme.lines)]
        machines = [offer.machines for offer in own]
        predictions = [offer.prediction for offer in own]
        upper.fill_between(
            machines,
            [prediction.lower for prediction in predictions],
            [prediction.upper for prediction in predictions],
            color=colour,
            alpha=0.18,
            linewidth=0,
        )
        medians = [prediction.median for prediction in predictions]
        upper.plot(machines, medians, color=colour, label=name or "runtime")
        if lower is not None:
            lower.plot(machines, [offer.cost or 0.0 for offer in own], color=colour)
    if limit_s is not None:
        upper.axhline(limit_s, color=theme.faint, linestyle=(0, (4, 3)), linewidth=0.9)
    upper.set_ylabel("runtime (s)")
    upper.set_ylim(bottom=0.0)
    upper.legend(frameon=False)
    if lower is not None:
        lower.set_ylabel("cost")
        lower.set_ylim(bottom=0.0)
    (lower or upper).set_xlabel("machines")
    return figure
