"""A placement study as an image; matplotlib is imported only to draw it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kongming.evaluate.figures import theme as themes
from kongming.evaluate.figures.theme import Theme
from kongming.quantities import per_cent

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

VIOLATED = 0.01
"""Maximum share of jobs below a quality target that counts as held."""


def draw(path: Path, document: Mapping[str, Any]) -> None:
    """Write an SVG or PNG, by the suffix of ``path``: the distribution of slowdowns by policy,
    and the utilisation gained against the quality target, if there are targets.

    Raises:
        MissingExtraError: matplotlib is not installed.
    """
    themes.write_one(lambda theme: _figure(theme, document), path)


def _figure(theme: Theme, document: Mapping[str, Any]) -> Figure:
    colours = {
        name: theme.lines[k % len(theme.lines)] for k, name in enumerate(document["policies"])
    }
    # A fleet may be too slow for each target.
    panels = 2 if document["quality"] else 1
    figure = themes.new_figure(4.8 * panels, 4.4)
    _slowdowns(figure.add_subplot(1, panels, 1), theme, document, colours)
    if panels == 2:
        _gained(figure.add_subplot(1, 2, 2), theme, document, colours)
    return figure


def _slowdowns(
    axes: Axes, theme: Theme, document: Mapping[str, Any], colours: Mapping[str, str]
) -> None:
    themes.title(axes, "How much slower jobs ran")
    last = 1.0
    for name, curve in document["slowdown_cdf"].items():
        axes.step(
            [value for value, _ in curve],
            [100.0 * share for _, share in curve],
            where="post",
            color=colours[name],
            linestyle="--" if name == "oracle" else "-",
            label=name,
        )
        # The slowest hundredth is left out, since it would compress the rest of the axis.
        last = max(last, next(value for value, share in curve if share >= 0.99))
    limit = document["settings"]["limit"]
    if limit is not None:
        axes.axvline(limit, color=theme.faint, linestyle=(0, (4, 3)), linewidth=0.9)
        axes.annotate(
            "limit",
            (limit, 2.0),
            xytext=(3, 0),
            textcoords="offset points",
            color=theme.faint,
        )
    axes.set_xlim(1.0 - 0.02 * (last - 1.0), last + 0.02)
    axes.set_ylim(0.0, 101.0)
    axes.set_xlabel("slowdown (run time / time alone)")
    axes.set_ylabel("jobs at or below this slowdown (%)")
    axes.grid(True)
    axes.legend(frameon=False, loc="lower right")


def _gained(
    axes: Axes, theme: Theme, document: Mapping[str, Any], colours: Mapping[str, str]
) -> None:
    themes.title(axes, "What sharing nodes gains")
    entries = document["quality"]
    targets = [entry["target"] for entry in entries]
    for name in document["policies"]:
        results = [entry["policies"][name] for entry in entries]
        axes.plot(
            targets,
            [max(result["gained_pct"], 0.0) for result in results],
            color=colours[name],
            linestyle="--" if name == "oracle" else "-",
        )
        for target, result in zip(targets, results, strict=True):
            holds_target = result["violated_share"] <= VIOLATED
            axes.plot(
                [target],
                [max(result["gained_pct"], 0.0)],
                marker="o",
                markersize=6.0,
                markeredgecolor=colours[name],
                markerfacecolor=colours[name] if holds_target else theme.page,
            )
    axes.annotate(
        f"hollow: more than {per_cent(100.0 * VIOLATED, '.0f')} of jobs fell below the target",
        (0.02, 0.02),
        xycoords="axes fraction",
        fontsize=8.0,
        color=theme.faint,
    )
    axes.set_ylim(bottom=-6.0)
    axes.set_xlabel("quality target (speed / speed alone)")
    axes.set_ylabel("work per node in use, over one job a node (%)")
    axes.set_xticks(targets)
    axes.grid(True)
