"""The figure of a tree: boxes as large as their text, side by side."""

from __future__ import annotations

from itertools import combinations

import pytest

from kongming.evaluate.figures.theme import DARK, LIGHT, Theme
from kongming.explore.regions import Region
from kongming.explore.tree_figure import text_of_box, tree_figure

OBLIQUE = " + ".join(f"0.{at}53 (codec_of_frames is h26{at})" for at in range(9))


def region(depth: int, condition: str) -> Region:
    return Region(depth, condition, None, 30, 0, 11.62, 1.0, 1.0)


def tree_of(condition: str) -> list[Region]:
    """A root, a leaf of few words and branches of long ones."""
    sides = [f"{condition} <= 0.6135", f"{condition} > 0.6135"]
    branch = [region(1, sides[0]), *(region(2, side) for side in sides)]
    deeper = [region(3, side) for side in sides]
    return [region(0, "all"), *branch, *deeper, region(1, "level > 3")]


@pytest.mark.parametrize("theme", [LIGHT, DARK], ids=lambda theme: theme.name)
@pytest.mark.parametrize(
    "condition", ["level", OBLIQUE, "spark_executor_memory_overhead_factor_of_the_driver"]
)
def test_no_box_covers_another(condition: str, theme: Theme) -> None:
    figure = tree_figure(theme, tree_of(condition), "seconds")
    figure.draw_without_rendering()
    boxes = []
    for text in figure.axes[0].texts:
        patch = text.get_bbox_patch()
        assert patch is not None
        boxes.append(patch.get_window_extent())
    assert len(boxes) == 7
    assert not any(first.overlaps(second) for first, second in combinations(boxes, 2))


def test_a_condition_is_broken_before_its_operators() -> None:
    text = text_of_box(region(1, "- 0.198 nodes + log(mem) - 2.51 (codec is gz) > 0.6135"), "MB")
    assert text == "- 0.198 nodes + log(mem)\n- 2.51 (codec is gz) > 0.6135\n30 runs, MB 11.62"


def test_a_condition_of_very_many_terms_keeps_its_limit() -> None:
    condition = " + ".join(f"0.5 (name is {at:020d})" for at in range(3000)) + " <= 0.6135"
    lines = text_of_box(region(1, condition), "seconds").splitlines()
    assert (len(lines), lines[-3:]) == (13, ["...", "<= 0.6135", "30 runs, seconds 11.62"])
