"""A stack weighs its members by what they predicted of runs that they had not seen."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kongming.learning.estimators.stacking import nested, stack_weights


def members(seed: int, noises: tuple[float, ...], n: int = 200) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(seed)
    y = random.normal(0.3, 0.3, n)
    return np.stack([y + noise * random.standard_normal(n) for noise in noises], axis=1), y


def error(predicted: np.ndarray, y: np.ndarray) -> float:
    return float(np.mean(np.abs(predicted - y)))


@given(st.integers(0, 1000), st.integers(1, 6), st.integers(0, 30))
def test_weights_are_a_share_of_the_whole(seed: int, k: int, n: int) -> None:
    random = np.random.default_rng(seed)
    found = stack_weights(random.normal(size=(n, k)), random.normal(size=n))
    assert (found >= 0.0).all()
    assert found.sum() == pytest.approx(1.0)


def test_a_better_member_weighs_more_and_a_useless_one_next_to_nothing() -> None:
    predictions, y = members(1, (0.02, 0.05, 1.0))
    found = stack_weights(predictions, y, pull=0.01)
    assert found[0] > found[1] > found[2]
    assert found[2] < 0.05


def test_two_members_that_err_differently_do_better_together() -> None:
    predictions, y = members(2, (0.1, 0.1))
    alone = [error(predictions[:, j], y) for j in range(2)]
    folds = [np.arange(start, len(y), 5) for start in range(5)]
    assert error(nested(predictions, y, folds), y) < 0.85 * min(alone)


def test_equal_members_weigh_the_same_and_change_nothing() -> None:
    predictions, y = members(3, (0.1,))
    doubled = np.repeat(predictions, 3, axis=1)
    found = stack_weights(doubled, y)
    np.testing.assert_allclose(found, 1.0 / 3.0)
    np.testing.assert_allclose(doubled @ found, predictions[:, 0])


def test_a_row_is_predicted_by_weights_that_never_saw_it() -> None:
    predictions, y = members(4, (0.05, 0.3), n=20)
    folds = [np.arange(10), np.arange(10, 20)]
    changed = y.copy()
    changed[:10] += 5.0
    np.testing.assert_array_equal(
        nested(predictions, y, folds)[:10], nested(predictions, changed, folds)[:10]
    )
    assert np.isnan(nested(predictions, y, folds[:1])[10:]).all()
