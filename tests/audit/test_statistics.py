"""The statistics of an audit: what they promise, on data whose truth is known."""

from __future__ import annotations

from math import sqrt

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import special

from kongming.arrays import Floats
from kongming.audit.analysis.movements import movement
from kongming.audit.analysis.multiple import benjamini_hochberg, holm
from kongming.audit.analysis.quantile_intervals import (
    autocorrelation,
    quantile_interval,
    rank_bounds,
)
from kongming.audit.analysis.repetitions import mean_bounds, repetitions
from kongming.audit.analysis.slow_machines import differences
from kongming.audit.analysis.summaries import histogram, summarise_machine, summarise_type
from kongming.audit.analysis.trends import change_points, drift, logs, time_of_day

TRIALS = 400


def first_order(random: np.random.Generator, n: int, correlation: float) -> Floats:
    series = np.empty(n)
    value = random.normal()
    for k in range(n):
        value = correlation * value + sqrt(1.0 - correlation**2) * random.normal()
        series[k] = value
    return series


def within(count: int, share: float, trials: int = TRIALS) -> bool:
    """Whether a count agrees with a share, within three and a half standard errors."""
    return abs(count / trials - share) <= 3.5 * sqrt(share * (1.0 - share) / trials)


@pytest.mark.parametrize(("n", "bounds"), [(6, (1, 6)), (10, (2, 9)), (70, (27, 44))])
def test_ranks_of_the_median_are_those_of_the_tables(n: int, bounds: tuple[int, int]) -> None:
    assert rank_bounds(n, 0.5, 0.95) == bounds


def test_five_readings_have_no_interval_of_the_median() -> None:
    assert rank_bounds(5, 0.5, 0.95) is None
    assert quantile_interval(np.arange(5.0), 0.5) is None


@pytest.mark.parametrize("quantile", [0.05, 0.5, 0.95])
def test_intervals_hold_the_quantile_as_often_as_they_say(quantile: float) -> None:
    random = np.random.default_rng(5)
    truth = float(np.exp(0.3 * special.ndtri(quantile)))
    held = 0
    for _ in range(TRIALS):
        bounds = quantile_interval(np.sort(np.exp(0.3 * random.normal(size=150))), quantile)
        assert bounds is not None
        held += bounds[0] <= truth <= bounds[1]
    # Order statistics are discrete: they may hold it more often.
    assert held / TRIALS >= 0.95 or within(held, 0.95)


def test_autocorrelation_widens_intervals_until_they_hold() -> None:
    random = np.random.default_rng(6)
    naive = held = 0
    for _ in range(TRIALS):
        series = first_order(random, 200, 0.7)
        ascending = np.sort(series)
        tau = autocorrelation(series).tau
        for effective in (None, len(series) / tau):
            bounds = quantile_interval(ascending, 0.5, 0.95, effective)
            assert bounds is not None
            inside = bounds[0] <= 0.0 <= bounds[1]
            naive, held = (naive + inside, held) if effective is None else (naive, held + inside)
    assert naive / TRIALS < 0.8
    assert held / TRIALS > 0.9


def test_the_interval_of_a_type_is_of_machines() -> None:
    random = np.random.default_rng(7)
    held = 0
    for _ in range(TRIALS):
        stretches = [
            np.exp(0.1 * random.normal() + 0.02 * random.normal(size=40)) for _ in range(8)
        ]
        bounds = summarise_type(stretches, 0.95, ()).intervals[1]
        held += bounds is None or bounds[0] <= 1.0 <= bounds[1]
    assert held / TRIALS > 0.9


@pytest.mark.parametrize(("count", "longer"), [(6, 10), (12, 10), (20, 30)])
def test_a_machine_that_was_recorded_for_longer_is_one_machine(count: int, longer: int) -> None:
    random = np.random.default_rng(5)
    missed = 0
    for _ in range(TRIALS):
        levels = 0.05 * random.normal(size=count)
        sizes = [20 * longer] + [20] * (count - 1)
        machines = [
            np.exp(level + 0.02 * random.normal(size=n))
            for level, n in zip(levels, sizes, strict=True)
        ]
        bounds = summarise_type(machines, 0.95, ()).intervals[1]
        missed += bounds is not None and not bounds[0] <= 1.0 <= bounds[1]
    assert missed / TRIALS <= 0.1


def test_one_machine_says_nothing_of_its_type() -> None:
    values = np.random.default_rng(0).normal(10.0, 1.0, 100)
    assert summarise_type([values], 0.95, ()).intervals[1] is None
    assert summarise_machine(values, 0.95, ()).intervals[1] is not None


def test_confirm_agrees_with_drawn_subsets() -> None:
    random = np.random.default_rng(8)
    values = np.exp(0.1 * random.normal(size=200))
    lower, upper = 0.0, 0.0
    for _ in range(3000):
        drawn = np.sort(random.choice(values, 30, replace=False))
        bounds = quantile_interval(drawn, 0.5)
        assert bounds is not None
        lower, upper = lower + bounds[0] / 3000, upper + bounds[1] / 3000
    assert mean_bounds(np.sort(values), 30, 0.95) == pytest.approx((lower, upper), rel=2e-3)


def test_more_noise_takes_more_repetitions() -> None:
    shape = special.ndtri((np.arange(3000) + 0.5) / 3000)
    counts = [repetitions(np.exp(noise * shape), 0.01) for noise in (0.001, 0.02, 0.05, 0.3)]
    assert all(estimate is not None for estimate in counts)
    needed = [estimate.needed for estimate in counts if estimate is not None]
    assert needed == sorted(needed)
    assert needed[0] == 10
    # 1.96 x 1.2533 x noise / precision, squared, for a normal distribution.
    assert needed[2] == pytest.approx(151, rel=0.2)
    assert [estimate.extrapolated for estimate in counts if estimate is not None] == [
        False,
        False,
        False,
        True,
    ]


@given(st.lists(st.floats(0.1, 10.0), min_size=10, max_size=40), st.randoms())
def test_the_order_of_readings_is_no_matter(values: list[float], random: object) -> None:
    mixed = list(values)
    random.shuffle(mixed)  # type: ignore[attr-defined]
    original, shuffled = (np.sort(np.array(given)) for given in (values, mixed))
    assert repetitions(original, 0.05) == repetitions(shuffled, 0.05)
    assert quantile_interval(original, 0.5) == quantile_interval(shuffled, 0.5)
    assert histogram(original).counts.tolist() == histogram(shuffled).counts.tolist()


@given(st.lists(st.floats(1e-9, 1e9), min_size=1, max_size=60))
def test_histograms_count_everything(values: list[float]) -> None:
    bins = histogram(np.sort(np.array(values)))
    assert bins.counts.sum() + bins.below + bins.above == len(values)


@given(st.lists(st.floats(0.0, 1.0), min_size=1, max_size=30))
def test_adjusted_p_values_keep_their_order(p: list[float]) -> None:
    for adjusted in (holm(p), benjamini_hochberg(p)):
        assert (adjusted >= np.array(p) - 1e-12).all()
        assert (adjusted <= 1.0).all()
        assert (np.diff(adjusted[np.argsort(p, kind="stable")]) >= -1e-12).all()
    assert (benjamini_hochberg(p) <= holm(p) + 1e-12).all()


def test_missing_p_values_do_not_count() -> None:
    assert holm([0.01, np.nan, 0.04])[[0, 2]].tolist() == [0.02, 0.04]
    assert np.isnan(benjamini_hochberg([0.01, np.nan])[1])


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("correlation", "n", "most"), [(0.0, 60, 0.03), (0.5, 200, 0.04), (0.8, 600, 0.04)]
)
def test_noise_that_lingers_is_no_change(correlation: float, n: int, most: float) -> None:
    random = np.random.default_rng(10)
    false_alarms = 0
    for _ in range(300):
        changes = change_points(np.exp(0.05 * first_order(random, n, correlation)))
        assert changes is not None
        false_alarms += bool(changes.at)
    assert false_alarms / 300 <= most


def test_changes_are_found_where_they_are() -> None:
    random = np.random.default_rng(11)
    values = np.exp(0.03 * random.normal(size=300))
    values[100:220] *= 1.1
    changes = change_points(values)
    assert changes is not None
    assert np.abs(np.array(changes.at) - [100, 220]).max() <= 4


def test_outliers_are_no_change() -> None:
    random = np.random.default_rng(12)
    values = np.exp(0.03 * random.normal(size=300))
    values[[50, 51, 200]] *= 30.0
    changes = change_points(values)
    assert changes is not None
    assert changes.at == ()


def test_noise_that_lingers_is_no_drift_and_no_rhythm() -> None:
    random = np.random.default_rng(13)
    seconds = np.linspace(0.0, 5 * 86400.0, 300)
    drifting = rhythmic = 0
    for _ in range(200):
        y = logs(np.exp(0.05 * first_order(random, 300, 0.7)))
        slope, rhythm = drift(seconds, y), time_of_day(seconds, y)
        assert slope is not None
        assert rhythm is not None
        drifting += slope.p <= 0.05
        rhythmic += rhythm.p <= 0.05
    assert drifting / 200 <= 0.10
    assert rhythmic / 200 <= 0.10


def test_levels_of_two_recordings_are_no_drift() -> None:
    random = np.random.default_rng(14)
    seconds = np.concatenate([np.linspace(0.0, 4000.0, 60) + day * 86400.0 for day in range(2)])
    recording = np.repeat([0, 1], 60)
    level = np.where(recording == 1, 0.03, 0.0)
    false = detected = 0
    for _ in range(100):
        y = level + 0.02 * random.normal(size=120)
        within = 0.06 * (seconds % 86400.0) / 4000.0
        flat, steep = drift(seconds, y, recording), drift(seconds, y + within, recording)
        assert flat is not None
        assert steep is not None
        false += flat.p <= 0.05
        detected += steep.p <= 0.05
        assert steep.span_s == pytest.approx(4000.0)
    assert false / 100 <= 0.05 + 0.065
    assert detected / 100 > 0.9


@pytest.mark.parametrize("recordings", [2, 3])
@pytest.mark.parametrize("within", [0.0, 0.02], ids=["flat", "drifting"])
def test_a_change_between_recordings_is_one_beside_a_drift_within_them(
    recordings: int, within: float
) -> None:
    random = np.random.default_rng(15)
    seconds = np.concatenate(
        [np.linspace(0.0, 7200.0, 120) + k * 86400.0 for k in range(recordings)]
    )
    recording = np.repeat(np.arange(recordings), 120)
    for jump in (0.05, 0.3):
        for _ in range(5):
            y = np.log1p(jump) * (recording > 0) + within * (seconds % 86400.0) / 7200.0
            y += 0.02 * random.normal(size=len(y))
            moved = movement(seconds, np.exp(y), recording)
            assert moved.changes is not None
            assert min((abs(at - 120) for at in moved.changes.at), default=999) <= 4
    # A slope that is hardly seen may be a step as well.
    false = 0
    for _ in range(10):
        y = 2.0 * within * (seconds % 86400.0) / 7200.0 + 0.02 * random.normal(size=len(seconds))
        moved = movement(seconds, np.exp(y), recording)
        assert moved.changes is not None
        false += bool(moved.changes.at)
    assert false <= 1


def test_short_recordings_say_nothing() -> None:
    y = np.zeros(50)
    assert drift(np.linspace(0.0, 3000.0, 50), y) is None
    assert time_of_day(np.linspace(0.0, 2 * 86400.0, 50), y) is None
    assert change_points(np.ones(19)) is None


def test_a_slow_machine_has_to_be_slow_beyond_doubt() -> None:
    costs = {f"m{k}": {"x": 1.0} for k in range(5)} | {"slow": {"x": 1.2}}
    sure = {m: {"x": (0.99 * own["x"], 1.01 * own["x"])} for m, own in costs.items()}
    vague = {m: {"x": (0.7 * own["x"], 1.4 * own["x"])} for m, own in costs.items()}
    assert [d.machine for d in differences(costs, sure, 0.95) if d.slow] == ["slow"]
    assert not any(d.slow for d in differences(costs, vague, 0.95))


def test_machines_whose_own_times_are_unknown_prove_no_other_slow() -> None:
    costs = {"a": {"x": 1.0}, "b": {"x": 1.0}, "slow": {"x": 1.2}}
    known = {m: {"x": (0.99 * own["x"], 1.01 * own["x"])} for m, own in costs.items()}
    assert [d.machine for d in differences(costs, known, 0.95) if d.slow] == ["slow"]
    for unknown in ({"a"}, {"a", "b"}):
        intervals = {m: {"x": None if m in unknown else known[m]["x"]} for m in costs}
        assert not any(d.slow for d in differences(costs, intervals, 0.95))


@pytest.mark.thorough
def test_a_machine_between_two_peaks_is_not_called_slow() -> None:
    random = np.random.default_rng(1)
    wrong = 0
    for _ in range(TRIALS // 2):
        costs, intervals = {}, {}
        for machine, slower in (("a", 1.05), ("b", 1.0), ("c", 1.0), ("d", 1.0)):
            peak = np.where(random.random(20) < 0.5, 1.0, 1.1)
            times = slower * peak * np.exp(0.01 * random.normal(size=20))
            summary = summarise_machine(times, 0.95, ())
            costs[machine] = {"x": summary.median}
            intervals[machine] = {"x": summary.intervals[1]}
        wrong += any(difference.slow for difference in differences(costs, intervals, 0.95))
    assert within(wrong, 0.05, TRIALS // 2)
