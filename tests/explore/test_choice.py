"""Which kind of model is chosen, and by which errors."""

from __future__ import annotations

import numpy as np

from kongming.explore.choice import choose
from kongming.explore.dimensions import Dimension

DIMENSIONS = tuple(Dimension(f"x{k}", "real", low=0.0, high=1.0) for k in range(2))
UNITS = (2.0**-10, 1.0, 2.0**30)
"""Powers of 2, by which nothing is rounded."""


def test_the_kind_of_model_does_not_depend_on_the_unit_of_the_target() -> None:
    """Times of 1 to 20: all of them span a decade, those of a single fold often do not."""
    names = ("lines", "bagged_lines", "pairs", "forest", "boosting")
    for seed in range(6):
        rng = np.random.default_rng(seed)
        x = rng.uniform(size=(30, 2))
        seconds = np.exp(3.0 * x[:, 0] + 0.1 * rng.normal(size=30))
        chosen = [choose(DIMENSIONS, x, unit * seconds, np.ones(30), names, seed) for unit in UNITS]
        assert len({each.name for each in chosen}) == 1
        assert len({frozenset(each.errors) for each in chosen}) == 1
        for each, unit in zip(chosen, UNITS, strict=True):
            np.testing.assert_allclose(each.held_out / unit, chosen[1].held_out, rtol=1e-6)
