"""The Gaussian process over learned directions, and when it is chosen."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import approx_fprime

from kongming.arrays import Floats
from kongming.explore.choice import Chosen, choose
from kongming.explore.dimensions import Dimension
from kongming.explore.learners import LEARNERS
from kongming.explore.learners.gaussian_process import ROUGH, SMOOTH
from kongming.explore.learners.projected_process import negative_likelihood

WEIGHTS = np.array([1.3, 0.7, 1.0, 0.9])


def hat(x: Floats) -> Floats:
    """A function of the weighted sum of four dimensions alone."""
    q = 12.5 * ((x - 0.5) @ WEIGHTS) ** 2
    return (1.0 - q) * np.exp(-q)


def error(name: str, x: Floats, y: Floats, at: Floats, exact: Floats) -> float:
    learner = LEARNERS[name](seed=1).fit(x, y)
    return float(np.mean((learner.predict(at) - exact) ** 2) / exact.var())


def test_a_function_of_a_sum_is_learned_from_few_runs() -> None:
    rng = np.random.default_rng(0)
    x, at = rng.uniform(size=(60, 4)), rng.uniform(size=(500, 4))
    assert error("projections", x, hat(x), at, hat(at)) < 0.02
    assert error("gaussian_process", x, hat(x), at, hat(at)) > 0.2


def test_noise_alone_is_not_learned() -> None:
    rng = np.random.default_rng(0)
    x, y = rng.uniform(size=(60, 4)), rng.normal(size=60)
    predicted = LEARNERS["projections"](seed=1).fit(x, y).held_out(np.arange(60) % 5)
    assert np.mean((predicted - y) ** 2) > 0.7 * y.var()


def test_the_gradient_of_the_likelihood_is_that_of_differences() -> None:
    rng = np.random.default_rng(3)
    x, y = rng.uniform(size=(20, 3)), rng.normal(size=20)
    at = np.concatenate([rng.normal(size=6), [0.2, -2.0]])
    for kernel in (SMOOTH, ROUGH):
        _, gradient = negative_likelihood(at, x, y, kernel)
        differences = approx_fprime(at, lambda p, k=kernel: negative_likelihood(p, x, y, k)[0])
        np.testing.assert_allclose(gradient, differences, rtol=1e-3, atol=1e-4)


def choice(values: Floats, x: Floats, *more: str, seed: int = 0) -> Chosen:
    dimensions = tuple(Dimension(f"x{k}", "real", low=0.0, high=1.0) for k in range(x.shape[1]))
    names = ("lines", "gaussian_process", "projections", *more)
    return choose(dimensions, x, values, np.ones(len(x)), names, seed)


def chosen_for(values: Floats, x: Floats, seed: int = 0) -> str:
    return choice(values, x, seed=seed).name


@pytest.mark.thorough
def test_it_is_chosen_where_a_sum_explains_and_not_where_each_dimension_does() -> None:
    x = np.random.default_rng(5).uniform(size=(60, 4))
    assert chosen_for(2.0 + hat(x), x) == "projections"
    assert chosen_for(2.0 + np.exp(-4.0 * ((x - 0.5) ** 2).sum(axis=1)), x) == "gaussian_process"


def kink(x: Floats) -> Floats:
    """Largest in two opposite corners, so that what a few runs there show no others do."""
    return np.asarray(2.0 + np.exp(np.abs(2.5 * (x - 0.5) @ WEIGHTS)))


@pytest.mark.thorough
@pytest.mark.parametrize("seed", [3, 4])
def test_likelihoods_prove_what_left_out_runs_do_not(seed: int) -> None:
    rng = np.random.default_rng([seed, 7])
    x, at = rng.beta(0.25, 0.25, size=(48, 4)), rng.uniform(size=(500, 4))
    errors = {
        name: error(name, x, kink(x), at, kink(at)) for name in ("gaussian_process", "projections")
    }
    assert errors["projections"] < 0.1 * errors["gaussian_process"]
    assert chosen_for(kink(x), x, seed) == "projections"


@pytest.mark.thorough
@pytest.mark.parametrize("seed", [0, 3])
def test_likelihoods_say_nothing_of_other_learners(seed: int) -> None:
    """Along a steep step perceptrons predict what is left out; that directions are likelier than
    dimensions does not make them better than that, nor their errors smaller."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(size=(45, 3))
    weights = rng.uniform(0.3, 1.5, 3)
    along = (x - 0.5) @ weights / weights.sum()
    y = 1.0 / (1.0 + np.exp(-20.0 * along)) + 0.3 * along
    plain, projected = (
        LEARNERS[name](seed=seed).fit(x, y) for name in ("gaussian_process", "projections")
    )
    assert projected.evidence > plain.evidence + 40.0
    chosen = choice(y, x, "perceptrons", seed=seed)
    assert chosen.name == "perceptrons"
    assert chosen.errors["projections"] > 2.0 * chosen.errors["perceptrons"]


@pytest.mark.thorough
def test_directions_are_no_evidence_where_there_is_nothing() -> None:
    for seed in range(3):
        rng = np.random.default_rng(seed)
        x, y = rng.uniform(size=(40, 3)), rng.normal(size=40)
        plain, along = (
            LEARNERS[name](seed=seed).fit(x, y).evidence
            for name in ("gaussian_process", "projections")
        )
        assert along < plain


@pytest.mark.thorough
def test_with_more_columns_than_runs_noise_is_not_learned() -> None:
    """Along some direction of 40 columns the 24 values of any target lie on a line."""
    for seed in range(3):
        rng = np.random.default_rng(seed)
        x, y = rng.uniform(size=(24, 40)), rng.normal(size=24)
        assert chosen_for(y, x, seed) != "projections"
        predicted = LEARNERS["projections"](seed=seed).fit(x, y).held_out(np.arange(24) % 5)
        assert np.mean((predicted - y) ** 2) > 0.7 * y.var()


def test_it_is_chosen_only_with_runs_for_each_column() -> None:
    """Six columns of 20 runs may be weighed, seven may not."""
    for columns, names in ((6, {"projections", "lines"}), (7, {"lines"})):
        x = np.random.default_rng(1).uniform(size=(20, columns))
        dimensions = tuple(Dimension(f"x{k}", "real", low=0.0, high=1.0) for k in range(columns))
        judged = choose(dimensions, x, x.sum(axis=1), np.ones(20), ("lines", "projections"), 0)
        assert set(judged.errors) == names
