"""Which kind of model is chosen, and by which errors."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
import pytest

from kongming.arrays import Floats
from kongming.explore.choice import _MOST, choose
from kongming.explore.dimensions import Dimension
from kongming.explore.learners import LEARNERS

DIMENSIONS = tuple(Dimension(f"x{k}", "real", low=0.0, high=1.0) for k in range(2))
UNITS = (2.0**-10, 1.0, 2.0**30)
"""Powers of 2, by which nothing is rounded."""


@pytest.mark.parametrize(
    "more", [(), pytest.param(("forest", "boosting"), marks=pytest.mark.thorough)]
)
def test_the_kind_of_model_does_not_depend_on_the_unit_of_the_target(more: tuple[str, ...]) -> None:
    """Times of 1 to 20: all of them span a decade, those of a single fold often do not."""
    names = ("lines", "bagged_lines", "pairs", *more)
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


class Scripted:
    """Stands for a learner: predicts ``x0 - 1/2`` and errs by so much as its class says."""

    squared_errors: tuple[float, ...] = ()
    """Of the runs of each further fold; the last one also of all others."""
    fits = 0

    def __init__(self, seed: int, groups: Floats) -> None:
        pass

    def fit(self, X: Floats, y: Floats) -> Self:
        self.X = X
        self.error = self.squared_errors[min(type(self).fits, len(self.squared_errors) - 1)]
        type(self).fits += 1
        return self

    def predict(self, X: Floats) -> Floats:
        return np.asarray(X[:, 0] - 0.5 + np.sqrt(self.error))


class ScriptedProcess(Scripted):
    """Has its left-out predictions without another fit."""

    def held_out(self, folds: np.ndarray) -> Floats:
        return self.predict(self.X)


def scripted(base: type[Scripted], *squared_errors: float) -> Any:
    return type("Learner", (base,), {"squared_errors": squared_errors, "fits": 0})


@pytest.mark.parametrize("names", [(), ("projections",)])
def test_a_learner_that_may_not_be_taken_does_not_drop_others(
    monkeypatch: pytest.MonkeyPatch, names: tuple[str, ...]
) -> None:
    """Projections err least and not by enough; a forest begins badly and errs least of the rest."""
    monkeypatch.setitem(LEARNERS, "gaussian_process", scripted(ScriptedProcess, 1.0))
    monkeypatch.setitem(LEARNERS, "projections", scripted(ScriptedProcess, 0.3))
    monkeypatch.setitem(LEARNERS, "forest", scripted(Scripted, 1.3, 0.7))
    x = np.random.default_rng(0).uniform(size=(30, 2))
    tried = ("gaussian_process", *names, "forest")
    assert choose(DIMENSIONS, x, x[:, 0] - 0.5, np.ones(30), tried, 0).name == "forest"


def test_of_learners_that_are_exact_the_simplest_goes_on_beyond_the_runs() -> None:
    """A tree of a single leaf is a line too, but its predictions end near the values."""
    dimensions = tuple(Dimension(name, "real", low=1.0, high=16.0) for name in "ab")
    x = np.random.default_rng(0).uniform(1.0, 6.0, size=(15, 2))
    for names in (("tree", "perceptrons", "pairs", "lines"), ("lines", "pairs", "tree")):
        chosen = choose(dimensions, x, x[:, 0] * x[:, 1], np.ones(15), names, 0)
        assert chosen.name == "lines"
        assert chosen.predict(np.array([[6.0, 16.0]])) == pytest.approx(96.0, rel=1e-3)
