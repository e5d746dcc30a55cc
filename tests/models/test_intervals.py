"""Intervals around a prediction, and the factor by which co-runs of others widen them."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kongming.learning.intervals import (
    UNWIDENED,
    Widening,
    applications_needed,
    expected_factor,
    expected_score,
    families_needed,
    interval,
    score,
    severity,
    tails,
    widening_factor,
)
from kongming.records.errors import InputError
from kongming.records.prediction import Interval

IDLE = np.array([1e-9, 1e-6, 1e-3])


def an_interval(
    log_slowdown: float = 0.2,
    at: float = 0.0,
    *,
    n: int = 30,
    spread: float = 0.05,
    noise: float = 0.01,
    groups: int = 12,
    level: float = 0.9,
    widening: Widening = UNWIDENED,
    limit: float = math.inf,
) -> Interval:
    residuals = np.random.default_rng(0).normal(0.0, spread, n)
    return interval(
        log_slowdown,
        at,
        known=tails(residuals, np.full(n, spread), noise=noise, level=level),
        lowest=-1.0,
        groups=groups,
        level=level,
        widening=widening,
        limit=limit,
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
    bounds = an_interval(log_slowdown, at, n=n, noise=noise)
    assert bounds.median == pytest.approx(math.exp(log_slowdown))
    assert math.log(bounds.upper / bounds.median) >= 1.64 * noise
    assert math.log(bounds.median / bounds.lower) >= 1.64 * noise
    assert math.isfinite(bounds.upper)


def test_an_interval_widens_with_its_level_and_with_the_load() -> None:
    def width(bounds: Interval) -> float:
        return bounds.upper / bounds.lower

    assert width(an_interval(level=0.5)) < width(an_interval(level=0.9))
    assert width(an_interval(at=0.0)) < width(an_interval(at=0.3))


def test_it_says_what_it_is_calibrated_by() -> None:
    by_others = an_interval(groups=12, widening=Widening(groups=5))
    for shown, by, groups in (
        (an_interval(groups=12), "families", 12),
        (by_others, "applications", 5),
        (an_interval(groups=9), "", 0),
        (replace(by_others, calibrated=False), "", 0),
    ):
        assert shown.calibrated == bool(by)
        assert (shown.calibrated_by, shown.calibrated_groups) == (by, groups)
        assert shown.to_dict()["calibrated_by"] == by
        assert shown.to_dict()["calibrated_groups"] == groups
        assert shown.scaled(2.0).calibrated_groups == groups


def test_it_says_when_it_is_not_calibrated() -> None:
    assert an_interval(groups=10).calibrated
    assert not an_interval(groups=9).calibrated
    assert not an_interval(n=5).calibrated


def test_it_does_not_reach_below_what_is_credible() -> None:
    residuals = np.linspace(-2.0, 2.0, 40)
    known = tails(residuals, np.full(40, 1.0), noise=0.01, level=0.9)
    bounds = interval(0.05, 1.0, known=known, lowest=-0.02, groups=12)
    assert bounds.expected_lower is not None
    assert math.log(bounds.expected_lower) == pytest.approx(-0.02)
    assert math.log(bounds.lower) == pytest.approx(0.05 - math.hypot(0.07, 1.645 * 0.01), abs=1e-4)


@pytest.mark.parametrize("level", [0.0, 1.0, -1.0, math.nan])
def test_a_level_is_between_0_and_1(level: float) -> None:
    with pytest.raises(InputError, match="level"):
        an_interval(level=level)


def test_intervals_cover_what_they_promise_where_runs_are_exchangeable() -> None:
    random = np.random.default_rng(1)
    inside = 0
    for _ in range(300):
        errors = random.normal(0.0, 0.1, 41)
        known = tails(errors[:40], np.full(40, 0.5), noise=0.005, level=0.9)
        bounds = interval(0.0, 0.5, known=known, lowest=-9.0, groups=40)
        inside += bounds.lower <= math.exp(errors[40]) <= bounds.upper
    assert 0.86 <= inside / 300 <= 0.98


def test_severity_is_what_goes_beyond_the_idle_nodes_own_spread() -> None:
    spread = np.array([0.1, 0.1, 0.1])
    times = np.array([IDLE, IDLE * 1.05, IDLE * math.exp(0.6)])
    assert severity(times, IDLE, spread).tolist() == pytest.approx([0.0, 0.0, 0.5])


def test_the_level_says_how_many_groups_it_needs() -> None:
    levels = (0.5, 0.8, 0.9, 0.95, 0.99)
    assert [families_needed(level) for level in levels] == [10, 10, 10, 19, 99]
    assert [applications_needed(level) for level in levels] == [5, 5, 5, 11, 55]


def test_families_and_applications_are_not_added_up() -> None:
    assert not an_interval(groups=8, widening=Widening(groups=4)).calibrated
    assert an_interval(groups=8, widening=Widening(groups=5)).calibrated
    assert not an_interval(groups=8, widening=Widening(groups=5), level=0.95).calibrated


@given(
    log_slowdown=st.floats(-0.5, 2.0),
    at=st.floats(0.0, 2.0),
    limit=st.floats(0.0, 3.0),
    factor=st.floats(0.05, 20.0),
    expected=st.floats(0.05, 20.0),
)
def test_the_median_of_many_runs_is_surer_than_one_run(
    log_slowdown: float, at: float, limit: float, factor: float, expected: float
) -> None:
    bounds = an_interval(
        log_slowdown, at, limit=limit, widening=Widening(factor, 7, 9, expected=expected)
    )
    assert bounds.expected is not None
    low, high = bounds.expected
    assert bounds.lower <= low <= bounds.median <= high <= bounds.upper
    assert math.log(high) <= max(limit, log_slowdown) + 1e-12


def test_repeats_widen_where_one_run_falls_but_not_where_many_do() -> None:
    calm, noisy = (an_interval(0.2, 0.0, noise=noise) for noise in (0.01, 0.1))
    assert calm.expected == noisy.expected == (calm.median, calm.median)
    assert math.log(noisy.upper / noisy.median) == pytest.approx(0.1645, abs=1e-4)


@given(
    log_slowdown=st.floats(0.0, 2.0),
    at=st.floats(0.0, 2.0),
    factor=st.floats(0.05, 20.0),
)
def test_widening_multiplies_both_halves_in_logs(
    log_slowdown: float, at: float, factor: float
) -> None:
    plain = an_interval(log_slowdown, at)
    wide = an_interval(log_slowdown, at, widening=Widening(factor))
    assert wide.median == plain.median
    for end in ("lower", "upper"):
        half, widened = (
            abs(math.log(getattr(bounds, end) / bounds.median)) for bounds in (plain, wide)
        )
        assert widened == pytest.approx(min(factor * half, math.log(1e6)))
    assert 0.0 < wide.lower <= wide.median <= wide.upper < math.inf


@pytest.mark.parametrize("factor", [0.0, -1.0, math.nan, math.inf])
def test_a_widening_is_a_finite_factor(factor: float) -> None:
    with pytest.raises(InputError, match="widening"):
        Widening(factor)
    with pytest.raises(InputError, match="widening"):
        Widening(expected=factor)


@given(slowdown=st.floats(0.2, 20.0), log_slowdown=st.floats(-0.2, 1.0), at=st.floats(0.0, 1.0))
def test_an_interval_widened_by_a_score_just_holds_what_was_measured(
    slowdown: float, log_slowdown: float, at: float
) -> None:
    needed = score(an_interval(log_slowdown, at), slowdown)
    if needed > 1e-3:
        wide = an_interval(log_slowdown, at, widening=Widening(needed * (1 + 1e-9)))
        assert wide.lower <= slowdown <= wide.upper
        narrow = an_interval(log_slowdown, at, widening=Widening(needed * 0.999))
        assert not narrow.lower <= slowdown <= narrow.upper


def scores_of(
    apps: int, *, each: int = 20, between: float = 0.5, seed: int = 0
) -> dict[str, list[float]]:
    """Scores of applications that differ from each other by ``between``, in logs."""
    random = np.random.default_rng(seed)
    scales = np.exp(between * random.standard_normal(apps))
    return {
        f"app{k}": np.abs(scale * random.standard_normal(each)).tolist()
        for k, scale in enumerate(scales)
    }


def test_a_mean_counts_only_as_far_as_its_own_error_does_not_explain_it() -> None:
    predicted = an_interval(0.2, 0.1)
    assert predicted.expected is not None
    high = math.log(predicted.expected[1])
    assert expected_score(predicted, 0.25, 0.06) == 0.0
    assert expected_score(predicted, high, 0.0) == pytest.approx(1.0)
    missed = math.hypot(high - 0.2, 0.05)
    assert expected_score(predicted, 0.2 + missed, 0.05) == pytest.approx(1.0)


def means_of(
    apps: int, *, model: float, noise: float, seed: int
) -> tuple[dict[str, list[float]], dict[str, list[float]]]:
    """Scores of means of an ``expected`` interval whose half is 1, without and with their noise,
    where the error of the model has a standard deviation of ``model`` / 1.645."""
    random = np.random.default_rng(seed)
    least, most = {}, {}
    for k in range(apps):
        missed = np.hypot(model, noise) / 1.645 * random.standard_normal(6)
        least[f"app{k}"] = np.sqrt(np.maximum(missed**2 - noise**2, 0.0)).tolist()
        most[f"app{k}"] = np.abs(missed).tolist()
    return least, most


def test_noisy_means_narrow_nothing() -> None:
    """As on seven programs whose means were known to 5 %: errors of the model that were as large as
    its intervals said could not be told from noise."""
    unseen = {f"app{k}": [0.0] * 6 for k in range(7)}
    assert expected_factor(unseen, {app: [3.0] * 6 for app in unseen}) == 1.0
    for seed in range(20):
        assert expected_factor(*means_of(7, model=1.0, noise=4.0, seed=seed)) >= 1.0


@given(
    pairs=st.dictionaries(
        st.text("abcdefgh", min_size=1, max_size=2),
        st.lists(st.tuples(st.floats(0.0, 3.0), st.floats(0.0, 2.0)), max_size=6),
        max_size=12,
    )
)
def test_all_of_a_mean_never_narrows_more_than_what_noise_leaves_of_it(
    pairs: dict[str, list[tuple[float, float]]],
) -> None:
    least = {app: [value for value, _ in each] for app, each in pairs.items()}
    most = {app: [value + noise for value, noise in each] for app, each in pairs.items()}
    factor = expected_factor(least, most)
    assert widening_factor(least) <= factor <= max(1.0, widening_factor(least))


def test_greater_scores_may_ask_for_less_and_get_no_less() -> None:
    least = {"a": [0.9664, 0.3170], "b": [0.0] * 4, "c": [0.3061, 0.2449], "d": [0.0]}
    most = {
        **least,
        "b": [0.3101, 0.1623, 0.0049, 0.0825],
        "d": [0.0183],
        "e": [0.0827, 0.0279, 0.3327, 0.3964],
    }
    least["e"] = [0.0] * 4
    assert widening_factor(most) < widening_factor(least) < 1.0
    assert expected_factor(least, most) == widening_factor(least)


def test_a_side_that_a_bound_holds_at_the_median_widens_no_other() -> None:
    held = replace(an_interval(0.2, 0.1), expected_lower=math.exp(0.2))
    assert expected_score(held, 0.19, 0.0) == 1.0
    assert expected_score(held, 0.19, 0.02) == 0.0


def test_means_that_are_known_narrow_and_widen_as_runs_do() -> None:
    for model, near in ((0.4, 0.4 ** (12 / 17)), (3.0, 3.0)):
        factors = [
            expected_factor(*means_of(12, model=model, noise=0.05, seed=seed)) for seed in range(20)
        ]
        assert np.median(factors) == pytest.approx(near, rel=0.15)
    least, most = means_of(12, model=0.4, noise=0.0, seed=0)
    assert expected_factor(least, most) == pytest.approx(widening_factor(most))


def test_without_co_runs_nothing_is_widened() -> None:
    assert widening_factor({}) == widening_factor({"a": [], "b": []}) == 1.0
    assert (UNWIDENED.factor, UNWIDENED.groups, UNWIDENED.pairs) == (1.0, 0, 0)


def test_few_applications_widen_by_the_worst_and_more_narrow_step_by_step() -> None:
    assert widening_factor({"a": [0.1, 2.5]}) == 2.5
    assert widening_factor({"a": [0.1, 2.5], "b": [3.5] * 3}) == 3.5
    factors = [
        widening_factor({f"app{k}": [0.1, 0.2, 0.3] for k in range(apps)})
        for apps in (1, 2, 4, 5, 10, 200)
    ]
    half, two_thirds, nearly = math.sqrt(0.3), 0.3 ** (2.0 / 3.0), 0.3 ** (200.0 / 205.0)
    assert factors == pytest.approx([1.0, 1.0, 1.0, half, two_thirds, nearly], rel=0.001)


@given(
    scores=st.dictionaries(
        st.text("abcdefgh", min_size=1, max_size=2),
        st.lists(st.floats(0.0, 50.0), max_size=8),
        max_size=14,
    ),
    level=st.floats(0.05, 0.95),
)
def test_a_factor_knows_no_order_and_is_one_of_the_scores_where_it_widens(
    scores: dict[str, list[float]], level: float
) -> None:
    factor = widening_factor(scores, level)
    assert factor <= 1.0 or factor in [value for values in scores.values() for value in values]
    assert widening_factor(dict(reversed(list(scores.items()))), level) == factor
    assert widening_factor({app: values[::-1] for app, values in scores.items()}, level) == factor
    assert widening_factor(scores, min(level + 0.04, 0.99)) >= factor


def test_an_application_counts_once_however_often_it_ran() -> None:
    few = scores_of(12)
    often = {app: values * (50 if app == "app3" else 1) for app, values in few.items()}
    assert widening_factor(often) == widening_factor(few)


def test_the_more_applications_differ_the_wider_it_gets() -> None:
    factors = [
        np.median([widening_factor(scores_of(12, between=between, seed=k)) for k in range(20)])
        for between in (0.0, 0.5, 1.0)
    ]
    assert factors[0] == pytest.approx(1.645, rel=0.1)
    assert factors[0] < 1.1 * factors[1] < factors[2]


@pytest.mark.parametrize("apps", [3, 5, 9, 13])
def test_an_application_that_was_not_seen_is_held_as_often_as_the_level_says(apps: int) -> None:
    held = []
    for seed in range(60):
        # Scores of some above 1, so that the factor is not held at 1.
        scores = {
            app: [3.0 * v for v in values] for app, values in scores_of(apps + 1, seed=seed).items()
        }
        unseen = scores.pop("app0")
        held.append(np.mean(np.array(unseen) <= widening_factor(scores)))
    assert 0.84 <= np.mean(held) <= 0.96


@pytest.mark.parametrize("wrong", [-1.0, math.nan, math.inf])
def test_what_is_no_score_is_refused(wrong: float) -> None:
    with pytest.raises(InputError, match="scores"):
        widening_factor({"a": [1.0], "b": [wrong, 2.0]})
    with pytest.raises(InputError, match="level"):
        widening_factor({"a": [1.0]}, level=1.0)


def test_what_lies_above_at_least_is_no_miss_and_what_lies_below_is() -> None:
    predicted = Interval(5.0, 4.0, 6.0, at_least=True, expected_lower=4.5, expected_upper=5.5)
    for slowdown in (6.0, 14.0, 1e4):
        assert score(predicted, slowdown) == 1.0
        assert expected_score(predicted, math.log(slowdown), 0.01) == 1.0
    assert score(predicted, 5.0) == 0.0
    assert score(predicted, 2.0) == score(replace(predicted, at_least=False), 2.0) > 4.0
    assert expected_score(predicted, math.log(2.0), 0.01) > 4.0
    held = {name: [score(predicted, 14.0)] * 4 for name in "abcdef"}
    assert widening_factor(held) == pytest.approx(1.0)
    missed = {name: [score(predicted, 2.0)] * 4 for name in "abcdef"}
    assert widening_factor(missed) > 4.0


@given(
    level=st.sampled_from((0.5, 0.9, 0.91, 0.95, 0.99)),
    groups=st.integers(1, 60),
    factor=st.sampled_from((0.2, 0.7, 1.0, 1.5)),
)
def test_a_factor_narrows_intervals_of_a_higher_level_only_with_enough_applications(
    level: float, groups: int, factor: float
) -> None:
    widening = Widening(factor, groups, 3 * groups, expected=factor)
    plain = an_interval(0.2, 0.05, level=level)
    learned = an_interval(0.2, 0.05, level=level, widening=widening)

    def halves(known: Interval) -> list[float]:
        return [abs(math.log(end / known.median)) for end in (known.lower, known.upper)]

    known_of_it = level <= 0.9 or groups >= applications_needed(level)
    its = factor if known_of_it else max(factor, 1.0)
    assert halves(learned) == pytest.approx([its * half for half in halves(plain)])
    assert learned.expected is not None
    assert plain.expected is not None
    if not known_of_it:
        assert learned.expected[1] >= plain.expected[1] * (1.0 - 1e-12)
        notes = widening.at(level).notes()
        assert not any("narrowed" in note for note in notes)
