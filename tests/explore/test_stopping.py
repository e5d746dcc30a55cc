"""When enough of a space is known."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kongming.explore.runs import deviations_of_repeats
from kongming.explore.stopping import certainty, enough, plausible_noise, wanted_repeats

RUNS = 400


def known(*args: Any) -> bool:
    return enough(np.array([certainty(*args)]))


def observed(noise: float, seed: int) -> np.ndarray:
    return 10.0 * np.exp(np.random.default_rng(seed).normal(0.0, noise, RUNS))


def test_noise_alone_keeps_nothing_from_being_known() -> None:
    """With 10 % noise a perfect prediction is missed by more than 15 % in one run of seven."""
    exact, shares = np.full(RUNS, 10.0), np.ones(RUNS)
    stopped = [known(observed(0.1, seed), exact, shares, 15.0, 1.0) for seed in range(20)]
    assert sum(stopped) >= 18
    assert not any(known(observed(0.1, seed), exact, shares, 15.0) for seed in range(20))


@pytest.mark.parametrize("wrong", [0.15, 0.2, 0.5])
def test_what_is_wrong_by_more_is_seen_through_the_noise(wrong: float) -> None:
    shares = np.ones(RUNS)
    held_out = np.where(np.arange(RUNS) < wrong * RUNS, 13.5, 10.0)
    stopped = [known(observed(0.1, seed), held_out, shares, 15.0, 1.0) for seed in range(20)]
    assert sum(stopped) <= 2


def test_without_noise_it_counts_misses() -> None:
    exact, shares = np.full(RUNS, 10.0), np.ones(RUNS)
    assert known(exact, exact * 1.049, shares, 5.0)
    assert not known(exact, exact * 1.051, shares, 5.0)


def test_noise_known_from_few_repeats_counts_less() -> None:
    def noise(repeats: int) -> np.ndarray:
        deviations = np.random.default_rng(0).normal(0.0, 0.1, 2 * repeats)
        return plausible_noise(deviations, deviations, repeats)

    assert noise(0).tolist() == noise(2).tolist() == [0.0]
    assert 0.0 < noise(10)[0] < noise(1000)[0] < 0.1 < noise(1000)[-1] < noise(10)[-1]


@given(st.lists(st.floats(1e-3, 10.0), min_size=3, max_size=30))
def test_the_noise_is_in_the_middle_of_what_it_may_be(deviations: list[float]) -> None:
    """Unless there are outliers, whose noise counts as less."""
    values = np.array(deviations)
    likely = plausible_noise(values, values, len(values))
    assert (np.diff(likely) > 0.0).all()
    assert likely[0] < np.sqrt(np.mean(values**2))


NO, MAYBE, YES = np.zeros(20), np.repeat([0.0, 1.0], 10), np.ones(20)


@pytest.mark.parametrize(
    ("certainties", "measured", "awaited", "repeated", "wanted"),
    [
        pytest.param(MAYBE, 5, 0, 5, 15, id="with more noise it would be enough"),
        pytest.param(NO, 5, 0, 5, 0, id="no noise makes it enough"),
        pytest.param(YES, 0, 0, 0, 0, id="enough"),
        pytest.param(NO[:1], 1, 0, 1, 2, id="noise is not known"),
        pytest.param(NO[:1], 1, 2, 3, 0, id="noise will be known"),
        pytest.param(NO[:1], 1, 0, 9, 2, id="repeats failed"),
        pytest.param(MAYBE, 5, 0, 20, 0, id="a third of the runs are repeats"),
        pytest.param(NO[:1], 0, 0, 20, 0, id="repeats measure nothing"),
    ],
)
def test_repeats_are_wanted_where_noise_decides(
    certainties: np.ndarray, measured: int, awaited: int, repeated: int, wanted: int
) -> None:
    assert wanted_repeats(certainties, measured, awaited, repeated, runs=60) == wanted


@pytest.mark.parametrize(
    "repeated",
    [
        pytest.param([[1.0, 1.0]] * 9 + [[1.0, 8.0]], id="one pair of ten"),
        pytest.param([[100.0, 101.0, 99.0, 300.0]], id="one of four runs of a point"),
        pytest.param([[100.0, 101.0], [100.0, 99.0, 300.0]], id="one of three"),
    ],
)
def test_an_outlier_makes_no_noise(repeated: list[list[float]]) -> None:
    point = np.repeat(np.arange(len(repeated)), [len(each) for each in repeated])
    values = np.log(np.concatenate(repeated))
    from_means, from_medians = (
        deviations_of_repeats(point, values, from_median=of_median) for of_median in (False, True)
    )
    likely = plausible_noise(from_means, from_medians, len(values) - len(repeated))
    assert likely[1] < 0.02
    assert np.median(likely) < 0.03
