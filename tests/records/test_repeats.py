"""What repeats of one run say: the solo time, its spread, and the noise floor."""

from __future__ import annotations

import math
import random
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kongming.records.run import geometric_mean, noise_floor_pct
from tests.variants import variants

costs = st.floats(1e-3, 1e3)


@given(costs, costs)
def test_two_repeats_are_half_the_log_difference(first: float, second: float) -> None:
    expected = 100 * abs(math.log(first) - math.log(second)) / 2
    assert noise_floor_pct([first, second]) == pytest.approx(expected, abs=1e-9)


def test_one_repeat_tells_no_noise() -> None:
    assert noise_floor_pct([2.0]) is None


@given(st.lists(costs, min_size=2, max_size=8), st.floats(0.01, 100))
def test_the_unit_does_not_matter(values: list[float], factor: float) -> None:
    scaled = [value * factor for value in values]
    assert noise_floor_pct(scaled) == pytest.approx(noise_floor_pct(values), abs=1e-6)
    assert geometric_mean(scaled) == pytest.approx(geometric_mean(values) * factor)


@pytest.mark.parametrize("repeats", [2, 3, 4, 5, 8])
def test_the_floor_is_what_a_perfect_predictor_is_off_by(repeats: int) -> None:
    """Whatever the number of repeats, it agrees with the true mean's error on average."""
    rng = random.Random(repeats)
    floors, errors = [], []
    for _ in range(3000):
        drawn = [math.exp(rng.gauss(0.0, 0.05)) for _ in range(repeats)]
        floors.append(noise_floor_pct(drawn))
        errors.append(100 * abs(math.log(geometric_mean(drawn))))
    assert statistics.fmean(floors) == pytest.approx(statistics.fmean(errors), rel=0.06)


@pytest.mark.parametrize("repeats", variants((13, 24)))
def test_the_order_of_many_repeats_does_not_matter(repeats: int) -> None:
    rng = random.Random(repeats)
    floors = []
    for _ in range(100):
        drawn = [math.exp(rng.gauss(0.0, 0.05)) for _ in range(repeats)]
        floors.append(noise_floor_pct(drawn))
        assert noise_floor_pct(sorted(drawn)) == pytest.approx(floors[-1])
    expected = 100 * 0.05 * math.sqrt(2 / math.pi / repeats)
    assert statistics.fmean(floors) == pytest.approx(expected, rel=0.06)
