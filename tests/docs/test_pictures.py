"""The figure of README and docs shows the committed predictions."""

from __future__ import annotations

import re

from tests.docs.scripts import load

pictures = load("pictures")


def test_the_figure_is_what_its_tables_draw() -> None:
    drawn = pictures.accuracy()
    assert (pictures.FOLDER / "accuracy.svg").read_text(encoding="utf-8") == drawn
    # It says by itself how good it is, and that it proves nothing.
    held, total = map(int, re.findall(r"(\d+) of (\d+) measured means lie within", drawn)[0])
    assert total == 42 + 56 + 20
    assert 0.9 * total <= held < total
    assert "chose the settings" in drawn


def test_each_picture_is_small() -> None:
    sizes = {path.name: path.stat().st_size for path in pictures.FOLDER.iterdir()}
    assert sizes.keys() == pictures.PICTURES.keys()
    assert max(sizes.values()) < 100_000
