"""When enough of a space is known."""

from __future__ import annotations

import numpy as np
import pytest

from kongming.explore.runs import deviations_of_repeats
from kongming.explore.stopping import enough, least_noise

RUNS = 400


def observed(noise: float, seed: int) -> np.ndarray:
    return 10.0 * np.exp(np.random.default_rng(seed).normal(0.0, noise, RUNS))


def test_noise_alone_keeps_nothing_from_being_known() -> None:
    """With 10 % noise a perfect prediction is missed by more than 15 % in one run of seven."""
    exact, shares = np.full(RUNS, 10.0), np.ones(RUNS)
    known = [enough(observed(0.1, seed), exact, shares, 15.0, 0.1) for seed in range(20)]
    assert sum(known) >= 18
    assert not any(enough(observed(0.1, seed), exact, shares, 15.0) for seed in range(20))


@pytest.mark.parametrize("wrong", [0.15, 0.2, 0.5])
def test_what_is_wrong_by_more_is_seen_through_the_noise(wrong: float) -> None:
    shares = np.ones(RUNS)
    held_out = np.where(np.arange(RUNS) < wrong * RUNS, 13.5, 10.0)
    stopped = [enough(observed(0.1, seed), held_out, shares, 15.0, 0.1) for seed in range(20)]
    assert sum(stopped) <= 2


def test_without_noise_it_counts_misses() -> None:
    exact, shares = np.full(RUNS, 10.0), np.ones(RUNS)
    assert enough(exact, exact * 1.049, shares, 5.0)
    assert not enough(exact, exact * 1.051, shares, 5.0)


def test_noise_known_from_few_repeats_counts_less() -> None:
    def noise(repeats: int) -> float:
        deviations = np.random.default_rng(0).normal(0.0, 0.1, 2 * repeats)
        return least_noise(deviations, deviations, repeats)

    assert noise(0) == noise(2) == 0.0
    assert 0.0 < noise(10) < noise(1000) < 0.105


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
    assert least_noise(from_means, from_medians, len(values) - len(repeated)) < 0.02
