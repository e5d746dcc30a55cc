"""A stack is the mean of its members as far as they agree that something slows the program."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from kongming.learning import model_file
from kongming.learning.consensus import consensus
from kongming.learning.predict import predict_environment
from kongming.learning.training import train_application
from kongming.learning.usefulness import better
from tests.models import synthetic

logs = st.floats(-5.0, 5.0, allow_subnormal=False)
many = arrays.arrays(np.float64, st.tuples(st.integers(1, 5), st.integers(2, 8)), elements=logs)


def agree(predictions: np.ndarray) -> np.ndarray:
    return consensus(predictions, 0.0)


@given(many)
def test_a_consensus_lies_between_zero_and_the_mean(predictions: np.ndarray) -> None:
    agreed, mean = agree(predictions), predictions.mean(axis=1)
    assert np.isfinite(agreed).all()
    assert (np.abs(agreed) <= np.abs(mean)).all()
    assert (agreed * mean >= 0.0).all()


@given(st.floats(0.001, 3.0), st.floats(0.0, 2.0), st.floats(0.0, 2.0))
def test_the_more_members_differ_the_smaller_the_consensus(
    mean: float, scale: float, other_scale: float
) -> None:
    spread = np.array([[-1.0, 1.0]])
    less, more = sorted((scale, other_scale))
    assert agree(mean + more * spread)[0] <= agree(mean + less * spread)[0] + 1e-12
    assert agree(mean + 0.0 * spread)[0] == pytest.approx(mean)


@given(many)
def test_the_order_of_members_changes_nothing(predictions: np.ndarray) -> None:
    order = np.random.default_rng(0).permutation(predictions.shape[1])
    np.testing.assert_allclose(
        agree(predictions[:, order]),
        agree(predictions),
        atol=1e-12,
    )


def test_members_that_contradict_each_other_say_nothing() -> None:
    assert abs(agree(np.array([[0.30, -0.28]]))[0]) < 1e-4
    assert agree(np.array([[0.30, 0.28]]))[0] == pytest.approx(0.29, rel=0.01)
    assert agree(np.zeros((1, 3)))[0] == 0.0


@given(many, st.floats(0.0, 4.0), st.floats(0.0, 4.0))
def test_the_more_is_left_open_the_smaller_the_consensus(
    predictions: np.ndarray, variance: float, other_variance: float
) -> None:
    less, more = sorted((variance, other_variance))
    nearer, farther = consensus(predictions, more), consensus(predictions, less)
    assert (np.abs(nearer) <= np.abs(farther) + 1e-12).all()


def test_an_advantage_counts_beyond_chance_only() -> None:
    random = np.random.default_rng(5)
    residuals, weights = random.normal(0.0, 0.1, 40), np.ones(40)
    assert better(residuals, 3.0 * residuals, weights)
    assert not better(residuals, random.permutation(residuals), weights)
    assert not better(residuals, residuals, weights)


def test_a_run_that_was_left_out_twice_counts_once() -> None:
    own, others = np.full(10, 0.1), 0.1 + np.array([0.155, -0.045] * 5)
    assert not better(own, others, np.ones(10))
    twice = np.tile(np.arange(10), 2)
    assert not better(own[twice], others[twice], np.full(20, 0.5))


@pytest.mark.thorough
def test_training_says_when_no_model_is_better_than_saying_nothing() -> None:
    # The quick variant is trained alike, of other columns.
    still = synthetic.campaign("still", {})
    insensitive = train_application(still, models=("STACK",), quick_columns=())
    variant = insensitive["variants"]["full"]
    assert variant["chosen"] == "STACK"
    assert variant["models"]["STACK"]["not_better_than"] == ["MEAN", "1"]
    runs = synthetic.campaign("loaded", {"memory.random.128M": 0.8, "iobench.read.4M": 0.5})
    trained = train_application(runs, models=("STACK",), quick_columns=())
    sensitive = trained["variants"]["full"]
    assert sensitive["reason"] == "it is the mean of the penalised models"
    assert sensitive["models"]["STACK"]["not_better_than"] == []
    assert "MEAN" in sensitive["models"]["MEAN"]["not_better_than"]


@pytest.mark.parametrize("induced", [2, pytest.param(6, marks=pytest.mark.thorough)])
def test_the_smallest_profile_is_answered_by_the_mean_too(induced: int) -> None:
    runs = synthetic.campaign("small", {"memory.random.128M": 0.8}, solos=3)
    solo = [run for run in runs if run.kind == "solo"]
    loaded = [run for run in runs if run.kind == "induced"]
    few = [*solo, *loaded[:: len(loaded) // induced][:induced]]
    document = train_application(few)
    assert document["runs"]["total"] == 3 + induced
    assert {variant["chosen"] for variant in document["variants"].values()} == {"STACK"}
    file = model_file.read(document)
    idle = {name: 1.0 * seconds for name, seconds in synthetic.IDLE.items()}
    predicted = predict_environment(file, idle).slowdown
    assert predicted.expected is not None
    assert (
        predicted.lower
        < predicted.expected[0]
        <= predicted.median
        <= predicted.expected[1]
        < predicted.upper
    )
    assert predicted.median == pytest.approx(1.0, abs=0.05)
    assert not predicted.calibrated
