"""Intervals, extrapolation, drivers and spaces: what is said beside the bare number."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kongming.errors import InputError
from kongming.models import extrapolation, spaces
from kongming.models.drivers import drivers
from kongming.models.intervals import interval, severity
from kongming.prediction import Interval

IDLE = np.array([1e-9, 1e-6, 1e-3])
FAMILIES = ("cache", "cache", "write")


def an_interval(
    log_slowdown: float = 0.2,
    at: float = 0.0,
    *,
    n: int = 30,
    spread: float = 0.05,
    noise: float = 0.01,
    groups: int = 12,
    level: float = 0.9,
) -> Interval:
    residuals = np.random.default_rng(0).normal(0.0, spread, n)
    return interval(
        log_slowdown,
        at,
        residuals=residuals,
        severities=np.zeros(n),
        noise=noise,
        floor=-1.0,
        groups=groups,
        level=level,
    )


@given(
    log_slowdown=st.floats(-0.5, 2.0),
    at=st.floats(0.0, 2.0),
    n=st.integers(0, 60),
    noise=st.floats(0.005, 0.1),
)
def test_an_interval_holds_its_median_and_is_never_narrower_than_the_noise(
    log_slowdown: float, at: float, n: int, noise: float
) -> None:
    found = an_interval(log_slowdown, at, n=n, noise=noise)
    assert found.median == pytest.approx(math.exp(log_slowdown))
    assert math.log(found.upper / found.median) >= 1.64 * noise
    assert math.log(found.median / found.lower) >= 1.64 * noise
    assert math.isfinite(found.upper)


def test_an_interval_widens_with_its_level_and_with_the_load() -> None:
    def width(found: Interval) -> float:
        return found.upper / found.lower

    assert width(an_interval(level=0.5)) < width(an_interval(level=0.9))
    assert width(an_interval(at=0.0)) < width(an_interval(at=0.3))


def test_it_says_when_it_is_not_calibrated() -> None:
    assert an_interval(groups=10).calibrated
    assert not an_interval(groups=9).calibrated
    assert not an_interval(n=5).calibrated


def test_it_does_not_reach_below_what_is_credible() -> None:
    found = interval(
        0.05,
        1.0,
        residuals=np.linspace(-2.0, 2.0, 40),
        severities=np.full(40, 1.0),
        noise=0.01,
        floor=-0.02,
        groups=12,
    )
    assert math.log(found.lower) == pytest.approx(-0.02)


@pytest.mark.parametrize("level", [0.0, 1.0, -1.0, math.nan])
def test_a_level_is_between_0_and_1(level: float) -> None:
    with pytest.raises(InputError, match="level"):
        an_interval(level=level)


def test_intervals_cover_what_they_promise_where_runs_are_exchangeable() -> None:
    random = np.random.default_rng(1)
    inside = 0
    for _ in range(300):
        errors = random.normal(0.0, 0.1, 41)
        found = interval(
            0.0,
            0.5,
            residuals=errors[:40],
            severities=np.full(40, 0.5),
            noise=0.005,
            floor=-9.0,
            groups=40,
        )
        inside += found.lower <= math.exp(errors[40]) <= found.upper
    assert 0.86 <= inside / 300 <= 0.98


def test_severity_is_what_goes_beyond_the_idle_nodes_own_spread() -> None:
    spread = np.array([0.1, 0.1, 0.1])
    times = np.array([IDLE, IDLE * 1.05, IDLE * math.exp(0.6)])
    assert severity(times, IDLE, spread).tolist() == pytest.approx([0.0, 0.0, 0.5])


def far(times: np.ndarray, weights: list[float]) -> extrapolation.Distance:
    return extrapolation.distance(
        times,
        low=IDLE,
        high=IDLE * np.array([2.0, 1.2, 4.0]),
        spread=np.full(3, 0.02),
        weights=np.array(weights),
    )


@given(share=st.lists(st.floats(0.0, 1.0), min_size=3, max_size=3))
def test_what_lies_within_the_training_ranges_is_not_flagged(share: list[float]) -> None:
    times = IDLE * np.array([2.0, 1.2, 4.0]) ** np.array(share)
    assert not far(times, [1.0, 0.5, 0.2]).outside


@pytest.mark.parametrize("column", [0, 1, 2])
@pytest.mark.parametrize("weights", [[1.0, 0.5, 0.2], [1.0, 0.0, 0.0], [0.0, 0.0, 0.0]])
def test_a_surrogate_twice_beyond_its_range_is_flagged(column: int, weights: list[float]) -> None:
    times = IDLE.copy()
    times[column] *= [4.0, 2.4, 8.0][column]
    found = far(times, weights)
    assert found.outside
    assert found.columns == (column,)
    fast = IDLE.copy()
    fast[column] /= 2.0
    assert far(fast, weights).outside


def test_the_margin_is_tighter_where_the_model_looks() -> None:
    times = IDLE * np.array([1.0, 1.2 * 1.3, 1.0])
    assert far(times, [0.0, 1.0, 0.0]).outside
    assert not far(times, [1.0, 0.0, 0.0]).outside


def test_drivers_are_shares_of_the_log_slowdown() -> None:
    coef = np.array([0.3, 0.1, 0.2])
    found = drivers(
        lambda rows: np.log(rows / IDLE) @ coef, IDLE * np.array([2.0, 4.0, 8.0]), IDLE, FAMILIES
    )
    assert [(d.family, pytest.approx(d.share)) for d in found] == [
        ("write", 0.6 / 1.1),
        ("cache", 0.5 / 1.1),
    ]


def test_an_interaction_is_shared_and_a_gain_is_left_out() -> None:
    both = drivers(
        lambda rows: np.log(rows[:, 0] / IDLE[0]) * np.log(rows[:, 2] / IDLE[2]),
        IDLE * 2.0,
        IDLE,
        FAMILIES,
    )
    assert [(d.family, pytest.approx(d.share)) for d in both] == [("cache", 0.5), ("write", 0.5)]
    gain = drivers(
        lambda rows: np.log(rows / IDLE) @ np.array([0.3, 0.0, -0.1]),
        IDLE * 2.0,
        IDLE,
        FAMILIES,
    )
    assert [(d.family, d.share) for d in gain] == [("cache", 1.0)]


def test_nothing_drives_on_the_idle_node_or_a_model_that_is_blind() -> None:
    assert drivers(lambda rows: np.log(rows / IDLE).sum(axis=1), IDLE, IDLE, FAMILIES) == ()
    assert drivers(lambda rows: np.full(len(rows), 0.3), IDLE * 3, IDLE, FAMILIES) == ()


@pytest.mark.parametrize("space", spaces.SPACES)
@given(logs=st.lists(st.floats(-1.0, 3.0), min_size=1, max_size=5))
def test_targets_come_back_as_log_slowdowns(space: spaces.Space, logs: list[float]) -> None:
    wanted = np.array(logs)
    back = spaces.log_slowdown(spaces.target(wanted, space), space, (-5.0, 5.0))
    np.testing.assert_allclose(back, wanted, atol=1e-12)


@pytest.mark.parametrize("space", spaces.SPACES)
def test_predictions_stay_within_what_is_credible(space: spaces.Space) -> None:
    bounds = spaces.credible_bounds(np.array([0.0, 0.7]), 0.02)
    wild = spaces.log_slowdown(np.array([-1e9, 1e9]), space, bounds)
    assert wild.tolist() == pytest.approx([-0.02, 0.7 + math.log(10.0)])
