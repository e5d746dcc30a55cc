"""Figure of a model's tree: its regions from left to right by depth, with the cuts between them.

Boxes are as large as their text, which is measured, so that none covers another: those of a depth
share a column as wide as the widest, and each has the height that it or its children need.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from kongming.evaluate.figures import theme as themes
from kongming.evaluate.figures.theme import Theme
from kongming.explore.regions import Region

if TYPE_CHECKING:
    from matplotlib.figure import Figure

DEEPEST = 4
"""Levels of the tree that are drawn."""

_WIDTH = 38
"""Characters of a line of a condition that has several terms."""

_MOST_LINES = 12
"""Lines of a condition; what is in the middle of a longer one is left out."""

_GAP = 0.2
"""Inches between the texts of two boxes, one above the other."""

_EDGES = 0.7
"""Inches between two columns, for the edges."""

_OPERATOR = re.compile(r" (?=(?:[-+<>]|<=|or) )")


def tree_figure(theme: Theme, model_regions: Sequence[Region], target: str) -> Figure:
    """Draw the first levels of a tree, of its regions in depth-first order."""
    tree = [region for region in model_regions if region.depth <= DEEPEST]
    figure = themes.new_figure(1.0, 1.0)
    figure.set_layout_engine("none")
    figure.set_dpi(themes.DPI)
    # All of the figure, so that a unit of the axes is an inch.
    axes = figure.add_axes((0.0, 0.0, 1.0, 1.0))
    axes.axis("off")
    texts = [
        axes.text(
            *(0.0, 0.0, text_of_box(region, target)),
            fontsize=8.5,
            va="center",
            bbox={"boxstyle": "round", "facecolor": theme.page, "edgecolor": theme.grid},
        )
        for region in tree
    ]
    # Without the margins of the boxes, which the gaps allow for.
    extents = [text.get_window_extent() for text in texts]
    widths = [extent.width / figure.dpi for extent in extents]
    heights = [extent.height / figure.dpi + _GAP for extent in extents]
    children = _children(tree)
    columns = [0.0]
    for depth in range(max(region.depth for region in tree) + 1):
        widest = max(widths[at] for at, region in enumerate(tree) if region.depth == depth)
        columns.append(columns[-1] + widest + _EDGES)
    middles = _middles(heights, children)
    for at, region in enumerate(tree):
        texts[at].set_position((columns[region.depth], middles[at]))
        for child in children[at]:
            axes.plot(
                [columns[region.depth] + widths[at], columns[region.depth + 1]],
                [middles[at], middles[child]],
                color=theme.faint,
                linewidth=0.9,
                zorder=1,
            )
    width, height = columns[-1] - _EDGES, 2.0 * -middles[0]
    figure.set_size_inches(width, height)
    axes.set_xlim(0.0, width)
    axes.set_ylim(-height, 0.0)
    themes.title(axes, "Regions of the space")
    return figure


def text_of_box(region: Region, target: str) -> str:
    """Return what a box says of a region: its condition, in lines that begin with an operator, and
    its runs."""
    condition = themes.lines(_OPERATOR.split(region.condition), _WIDTH)
    if len(condition) > _MOST_LINES:
        # The last one has the limit, by which the two sides of a cut differ.
        condition[_MOST_LINES - 2 : -1] = ["..."]
    least = "at least " if region.ended else ""
    return "\n".join([*condition, f"{region.runs} runs, {target} {least}{region.mean:.4g}"])


def _children(tree: Sequence[Region]) -> list[list[int]]:
    """Return the places of each region's children, of regions in depth-first order."""
    children: list[list[int]] = [[] for _ in tree]
    parents: list[int] = []
    for place, region in enumerate(tree):
        del parents[region.depth :]
        if parents:
            children[parents[-1]].append(place)
        parents.append(place)
    return children


def _middles(heights: Sequence[float], children: Sequence[Sequence[int]]) -> list[float]:
    """Return where boxes have their middle, downwards from 0: each in the middle of a strip of its
    own, within which its children have theirs."""
    strips = list(heights)
    for place in reversed(range(len(strips))):
        strips[place] = max(heights[place], sum(strips[child] for child in children[place]))
    middles = [-strips[0] / 2.0] * len(strips)
    for place, below in enumerate(children):
        top = middles[place] + sum(strips[child] for child in below) / 2.0
        for child in below:
            middles[child] = top - strips[child] / 2.0
            top -= strips[child]
    return middles
