"""Which kind of model is chosen, and by which errors."""

from __future__ import annotations

import numpy as np

from kongming.explore.choice import _MOST, choose
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


def test_a_value_without_a_logarithm_may_be_among_those_that_do_not_choose() -> None:
    """Of more than 1,200 points some choose the kind of model, all of which have logarithms here;
    one of the others is a time that was rounded to 0."""
    n = 2000
    x = np.random.default_rng(0).uniform(size=(n, 2))
    values = np.exp(8.0 * x[:, 0])
    choosing = np.random.default_rng(0).choice(n, _MOST, replace=False)
    values[np.setdiff1d(np.arange(n), choosing)[0]] = 0.0
    chosen = choose(DIMENSIONS, x, values, np.ones(n), ("lines",), 0)
    assert not chosen.log_target
    assert np.isfinite(chosen.predict(x)).all()
    values[values == 0.0] = 1.0
    assert choose(DIMENSIONS, x, values, np.ones(n), ("lines",), 0).log_target
