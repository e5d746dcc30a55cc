"""Figures of estimates (Spark thesis, 5.4) and evaluations (5.1); matplotlib is imported on use."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from kongming.evaluate.figures import theme as themes
from kongming.evaluate.figures.theme import Theme
from kongming.spark.estimation import Estimate, Price
from kongming.spark.recommendation import Recommendation

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from kongming.spark.evaluation import Evaluation


def draw(
    path: Path,
    title: str,
    estimates: Sequence[Estimate],
    chosen: Recommendation,
    measured: tuple[int, float],
    price_per_hour: Price = 1.0,
) -> None:
    """Write an SVG or PNG: the estimates with their interval, constant lengths, the measured point
    (executors, seconds), the three picks, and the cost below.

    Raises:
        MissingExtraError: matplotlib is not installed.
    """
    themes.write_one(
        lambda theme: _figure(theme, title, estimates, chosen, measured, price_per_hour), path
    )


def _figure(
    theme: Theme,
    title: str,
    estimates: Sequence[Estimate],
    chosen: Recommendation,
    measured: tuple[int, float],
    price: Price,
) -> Figure:
    figure = themes.new_figure(6.4, 6.4)
    figure.suptitle(title, x=0.01, ha="left", fontweight="bold", parse_math=False)
    upper = figure.add_subplot(2, 1, 1)
    lower = figure.add_subplot(2, 1, 2, sharex=upper)
    for k, cores in enumerate(dict.fromkeys(each.cores for each in estimates)):
        own = sorted(
            (each for each in estimates if each.cores == cores), key=lambda each: each.executors
        )
        colour = theme.lines[k % len(theme.lines)]
        counts = [each.executors for each in own]
        upper.fill_between(
            counts,
            [each.lower_s for each in own],
            [each.upper_s for each in own],
            color=colour,
            alpha=0.18,
            linewidth=0,
        )
        upper.plot(counts, [each.median_s for each in own], color=colour, label=f"{cores} cores")
        upper.plot(
            counts,
            [each.baselines["constant_durations"] for each in own],
            color=theme.faint,
            linestyle=(0, (4, 3)),
            linewidth=0.9,
            label="constant lengths" if not k else None,
        )
        lower.plot(counts, [each.cost(price) for each in own], color=colour)
    upper.plot(*measured, "o", color=theme.ink, label="measured")
    for marker, name, pick in (
        ("v", "cheapest", chosen.cheapest),
        ("^", "fastest", chosen.fastest),
        ("D", "knee", chosen.knee),
    ):
        upper.plot(
            pick.executors, pick.median_s, marker, color=theme.ink, fillstyle="none", label=name
        )
        lower.plot(pick.executors, pick.cost(price), marker, color=theme.ink, fillstyle="none")
    upper.set_ylabel("runtime (s)")
    upper.set_ylim(bottom=0.0)
    upper.legend(frameon=False)
    lower.set_ylabel("cost")
    lower.set_ylim(bottom=0.0)
    lower.set_xlabel("executors")
    return figure


def draw_evaluation(path: Path, evaluation: Evaluation) -> None:
    """Write figure 5.1: measured and predicted seconds over the slots, a line for each recorded
    size. Raises MissingExtraError as ``draw``."""
    themes.write_one(lambda theme: _evaluation_figure(theme, evaluation), path)


def _evaluation_figure(theme: Theme, evaluation: Evaluation) -> Figure:
    figure = themes.new_figure(6.4, 4.2)
    figure.suptitle(evaluation.name, x=0.01, ha="left", fontweight="bold", parse_math=False)
    axes = figure.add_subplot(1, 1, 1)
    measured = sorted({(pair.slots[1], pair.measured_s) for pair in evaluation.pairs})
    axes.plot(*zip(*measured, strict=True), "o", color=theme.ink, label="measured")
    for k, recorded in enumerate(evaluation.sizes):
        own = sorted(
            {
                (pair.slots[1], pair.models["replay"])
                for pair in evaluation.pairs
                if pair.recorded == recorded
            }
        )
        colour = theme.lines[k % len(theme.lines)]
        label = f"from {recorded[0]} x {recorded[1]}"
        axes.plot(*zip(*own, strict=True), color=colour, label=label)
    axes.set_xlabel("slots")
    axes.set_ylabel("runtime (s)")
    axes.set_ylim(bottom=0.0)
    axes.legend(frameon=False)
    return figure
