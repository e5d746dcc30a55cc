"""Intervals hold their median, and are wide where nothing is known."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kongming.explore import DecisionTreeProfiler, Space
from kongming.explore.intervals import Intervals
from tests.variants import variants

VALUES = st.lists(st.floats(-1e9, 1e9), min_size=4, max_size=12)


@example([1.0, 1.0, 1.0, 5e-324], [0.0, 0.0, 0.0, 0.0], 0.5, False)
@given(VALUES, VALUES, st.floats(0.05, 0.99), st.booleans())
def test_an_interval_holds_its_median(
    observed: list[float], medians: list[float], level: float, positive: bool
) -> None:
    y = np.abs(np.array(observed)) + 1e-6 if positive else np.array(observed)
    X = np.linspace(0.0, 1.0, len(y))[:, None]
    intervals = Intervals(X, y, np.roll(y, 1), np.ones(len(y)), level)
    median = np.array(medians)
    lower, upper = intervals.bounds(np.linspace(0.0, 2.0, len(median))[:, None], median)
    assert np.all((lower <= median) & (median <= upper))


@given(
    st.lists(st.integers(-1000, 1000), min_size=2, max_size=20),
    st.lists(st.integers(1, 9), min_size=20, max_size=20),
    st.floats(0.05, 0.99),
)
def test_runs_of_a_point_that_are_all_alike_are_as_good_as_a_single_run(
    values: list[int], repeats: list[int], level: float
) -> None:
    y = np.array(values, dtype=np.float64)
    X = np.random.default_rng(0).random((len(y), 2))
    counts = np.array(repeats[: len(y)])
    single = Intervals(X, y, np.roll(y, 1), np.ones(len(y)), level)
    several = Intervals(
        *(np.repeat(each, counts, axis=0) for each in (X, y, np.roll(y, 1), 1.0 / counts)), level
    )
    at = np.random.default_rng(1).random((9, 2))
    for ours, theirs in zip(
        several.bounds(at, np.zeros(9)), single.bounds(at, np.zeros(9)), strict=True
    ):
        assert ours == pytest.approx(theirs)


@given(
    st.integers(2, 150),
    st.lists(st.floats(0.01, float(np.nextafter(1.0, 0.0))), min_size=2, max_size=9),
)
@example(20, [0.9, 0.95, 0.96, 0.99, 0.999, float(np.nextafter(1.0, 0.0))])
def test_intervals_of_higher_levels_hold_those_of_lower_ones(
    points: int, levels: list[float]
) -> None:
    rng = np.random.default_rng(points)
    X, y, shares = rng.random((points, 2)), rng.normal(size=points), rng.random(points)
    uppers = [
        Intervals(X, y, np.zeros(points), shares, level).bounds(X[:1], np.zeros(1))[1]
        for level in sorted(levels)
    ]
    for (lower, narrow), (higher, wide) in pairwise(zip(sorted(levels), uppers, strict=True)):
        assert narrow <= wide < np.inf
        # Beyond what the runs can show, each level has its own.
        if lower >= points / (points + 1) and higher > lower + 1e-9:
            assert narrow < wide


@pytest.mark.parametrize("level", [0.99, 0.999])
def test_levels_that_few_runs_cannot_show_are_those_of_a_normal_tail(level: float) -> None:
    """With 20 runs the largest miss is that of 95%."""
    shares = []
    for seed in range(40):
        rng = np.random.default_rng(seed)
        X, y = rng.random((20, 2)), rng.normal(size=20)
        intervals = Intervals(X, y, np.zeros(20), np.ones(20), level)
        lower, upper = intervals.bounds(rng.random((200, 2)), np.zeros(200))
        further = rng.normal(size=200)
        shares.append(np.mean((lower <= further) & (further <= upper)))
    assert np.mean(shares) > level - 0.25 * (1.0 - level)


@pytest.mark.parametrize("repeats", [1, 3, 8])
def test_as_many_further_points_are_within_however_often_points_were_run(repeats: int) -> None:
    """What a model misses a point by is most of what its runs are missed by."""
    shares = []
    for seed in range(20):
        rng = np.random.default_rng(seed)
        X = np.repeat(rng.random((60, 2)), repeats, axis=0)
        y = np.repeat(rng.normal(size=60), repeats) + 0.1 * rng.normal(size=len(X))
        intervals = Intervals(X, y, np.zeros(len(X)), np.ones(len(X)), 0.9)
        lower, upper = intervals.bounds(rng.random((200, 2)), np.zeros(200))
        new = rng.normal(size=200) + 0.1 * rng.normal(size=200)
        shares.append(np.mean((lower <= new) & (new <= upper)))
    assert 0.88 < np.mean(shares) < 0.97


def test_intervals_are_wide_where_a_choice_was_never_run() -> None:
    space = Space.from_dict({"a": list(range(1, 13)), "c": {"choices": ["gz", "xz"]}})
    profiler = DecisionTreeProfiler(space, model="lines")
    for a in range(1, 13):
        profiler.tell({"a": a, "c": "gz"}, 100.0 + 5.0 * a)
    forecast = profiler.predict([{"a": 6, "c": "gz"}, {"a": 6, "c": "xz"}])
    widths = forecast.upper - forecast.lower
    assert widths[1] > 10.0 > 1.0 > widths[0]


def test_repeats_take_the_rest_of_the_budget_and_widen_their_interval() -> None:
    space = Space.from_dict({"a": [1, 2, 3, 4, 5, 6]})
    profiler = DecisionTreeProfiler(space, budget=14, batch=4, model="lines", repeats=True)
    seen: dict[int, list[float]] = {}
    while points := profiler.suggest():
        for point in points:
            values = seen.setdefault(point["a"], [])
            values.append(10.0 * point["a"] + 3.0 * len(values))
            profiler.tell(point, values[-1])
    assert sorted(len(values) for values in seen.values()) == [2, 2, 2, 2, 3, 3]
    forecast = profiler.predict([{"a": a} for a in seen])
    assert np.all(forecast.lower <= [min(values) for values in seen.values()])
    assert np.all(forecast.upper >= [max(values) for values in seen.values()])


@pytest.mark.parametrize("model", variants(("lines", "tree", "auto"), 2))
def test_what_was_always_positive_is_predicted_positive(model: str) -> None:
    profiler = DecisionTreeProfiler(Space.from_dict({"x": {"from": 1, "to": 12}}), model=model)
    for x, seconds in enumerate((100, 80, 60.5, 40, 20.2, 9), start=1):
        profiler.tell({"x": x}, float(seconds))
    forecast = profiler.predict([{"x": x} for x in (3, 7, 8, 10, 12)])
    assert np.all(forecast.median > 0.0)
    assert np.all((forecast.lower > 0.0) & (forecast.lower <= forecast.median))
    assert np.all((forecast.median <= forecast.upper) & (forecast.lower < forecast.upper))


@pytest.mark.parametrize(("points", "level", "width"), [(2, 0.9, 3), (7, 0.9, 3), (8, 0.9, 0)])
def test_few_values_that_are_alike_say_little_of_the_next(
    points: int, level: float, width: float
) -> None:
    X = np.linspace(0.0, 1.0, points)[:, None]
    for value in (-3.0, 3.0):
        y = np.full(points, value)
        lower, upper = Intervals(X, y, y, np.ones(points), level).bounds(X, y)
        assert lower.tolist() == pytest.approx([value - width] * points)
        assert upper.tolist() == pytest.approx([value + width] * points)


def test_the_lower_end_of_a_time_is_above_0_where_errors_are_as_large() -> None:
    y = np.array([1.0, 1.4, 1.1, 1.5, 1.2, 1.3])
    X = np.linspace(0.0, 1.0, len(y))[:, None]
    intervals = Intervals(X, y, y + np.array([2.0, -1.0] * 3), np.ones(len(y)), 0.9)
    lower, upper = intervals.bounds(X, y)
    # A tenth of the least, as for predictions.
    assert lower.tolist() == pytest.approx([0.1] * len(y))
    assert np.all(upper > 2.0)
    both_signs = Intervals(X, y - 1.2, y, np.ones(len(y)), 0.9)
    assert np.all(both_signs.bounds(X, y - 1.2)[0] < 0.0)


@pytest.mark.parametrize("points", [6, 12])
@pytest.mark.parametrize("least", [1e-1, 1e-9, 1e-90])
def test_a_value_near_0_does_not_make_all_intervals_infinite(points: int, least: float) -> None:
    rng = np.random.default_rng(points)
    space = Space.from_dict({"x": {"from": 1, "to": 60}, "y": [1, 2, 3]})
    profiler = DecisionTreeProfiler(space, budget=points, model="gaussian_process")
    xs, ys = rng.permutation(60)[:points] + 1, rng.integers(1, 4, points)
    values = 5.0 + 0.1 * xs * ys + rng.normal(0.0, 0.1, points)
    values[2] = least
    for x, y, value in zip(xs.tolist(), ys.tolist(), values.tolist(), strict=True):
        profiler.tell({"x": x, "y": y}, value)
    forecast = profiler.predict([{"x": x, "y": y} for x in range(1, 61) for y in (1, 2, 3)])
    # No prediction is less either.
    floor = least * min(0.1, least / float(values.max()))
    assert np.all((max(floor, 1e-300) <= forecast.lower) & (forecast.lower <= forecast.median))
    assert np.all((forecast.median <= forecast.upper) & (forecast.upper <= 10.0 * values.max()))


def test_an_upper_end_is_as_far_up_as_misses_say_that_are_not_relative() -> None:
    X = np.linspace(0.0, 1.0, 20)[:, None]
    y = np.tile([1.0, 100.0], 10)
    intervals = Intervals(X, y, np.tile([1e-9, 5000.0], 10), np.ones(20), 0.9)
    assert intervals.relative
    lower, upper = intervals.bounds(X, np.full(20, 50.0))
    assert np.all((upper > 4900.0) & (upper < 20000.0))
    assert np.all((lower > 0.0) & (lower < 0.1))
