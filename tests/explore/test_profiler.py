"""The loop of a profiler: suggested, observed, saved, resumed, predicted."""

from __future__ import annotations

import json
import re
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kongming.explore import (
    DecisionTreeProfiler,
    ExploreError,
    IncompatibleError,
    InputError,
    Space,
    UntrainedError,
)
from kongming.explore.cost import learned, within_means
from kongming.explore.learners import LEARNERS
from kongming.explore.policies import POLICIES
from kongming.explore.profiler import KIND

SPACE = Space.from_dict(
    {
        "nodes": [2, 4, 8],
        "mem_gb": {"from": 1, "to": 64, "log": True},
        "codec": {"choices": ["gz", "xz"]},
        "level": {"from": 1, "to": 9, "when": 'codec == "xz"'},
    },
    forbid=["nodes * mem_gb > 256"],
)

SLOW_LEARNERS = ("perceptrons", "projections")

LINE = Space.from_dict({"a": {"from": 1, "to": 30}})


def _seconds(point: dict[str, Any]) -> float:
    return 100.0 / point["nodes"] + 3.0 * point.get("level", 0) + 40.0 / point["mem_gb"]


def _profiled(space: Space = SPACE, **settings: Any) -> DecisionTreeProfiler:
    profiler = DecisionTreeProfiler(space, **{"budget": 30, "model": "pairs", **settings})
    while points := profiler.suggest():
        for point in points:
            profiler.tell(point, _seconds(point))
    return profiler


def test_nothing_told_is_lost_where_a_batch_cannot_be_suggested_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    space = Space.from_dict({"a": list(range(20))})
    profiler = DecisionTreeProfiler(space, budget=12, batch=5, policy="uni")
    resumed = DecisionTreeProfiler(space, budget=12, batch=5, policy="uni")
    for count in (5, 2):
        for point in profiler.suggest()[:count]:
            profiler.tell(point, float(point["a"]))
            resumed.tell(point, float(point["a"]))
    before = resumed.to_json()

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setitem(POLICIES, "uni", interrupted)
        with pytest.raises(KeyboardInterrupt):
            resumed.resume_batch()
    assert resumed.to_json() == before
    assert len(resumed.resume_batch()) == 3


@pytest.mark.parametrize("share", [0.1, 0.3, 0.4, 0.7])
def test_the_last_run_may_take_all_that_is_left(share: float) -> None:
    """Six runs cost twelve shares, whatever the sum of the fractions is in binary."""
    space = Space.from_dict({"a": [1, 2, 3], "b": [1, 2]})
    for seed in range(4):
        profiler = DecisionTreeProfiler(
            space,
            **{"budget": 12 * share, "budget_in": "cost", "cost": f"a * {share}"},
            **{"batch": 1, "policy": "uni", "random_state": seed},
        )
        while points := profiler.suggest():
            profiler.tell(points[0], float(points[0]["a"]))
        assert profiler.report()["runs"] == 6
        assert profiler.is_spent
        assert profiler.left == 0.0


@pytest.mark.parametrize("policy", ["dta", "auto"])
def test_a_resumed_profiler_goes_on_alike(policy: str) -> None:
    profiler = DecisionTreeProfiler(SPACE, budget=17, batch=4, policy=policy, model="pairs")
    while points := profiler.suggest():
        early, late = points[1:], points[0]
        for point in early:
            profiler.tell(point, _seconds(point) if point["mem_gb"] > 1 else None, cost=2.0)
        resumed = DecisionTreeProfiler.from_json(profiler.to_json())
        profiler.tell(late, _seconds(late))
        resumed.tell(late, _seconds(late))
        assert json.loads(resumed.to_json()) == json.loads(profiler.to_json())
        assert resumed.suggest(1) == DecisionTreeProfiler.from_json(profiler.to_json()).suggest(1)
    queries = SPACE.decode(SPACE.draw(5, np.random.default_rng(0)))
    again = DecisionTreeProfiler.from_json(profiler.to_json()).predict(queries)
    assert np.array_equal(again.median, profiler.predict(queries).median)
    assert np.array_equal(again.upper, profiler.predict(queries).upper)


@pytest.mark.parametrize(
    "policy",
    [
        pytest.param(name, marks=pytest.mark.thorough) if name in ("auto", "actl") else name
        for name in sorted(POLICIES)
    ],
)
def test_the_order_of_answers_changes_nothing(policy: str) -> None:
    """Nor where runs fail, in the batch in which failures begin to count included."""
    settings: dict[str, Any] = {"budget": 40, "batch": 8, "policy": policy, "model": "pairs"}
    forward, backward = (DecisionTreeProfiler(SPACE, **settings) for _ in range(2))
    while points := forward.suggest():
        assert backward.suggest() == points
        for profiler, answers in ((forward, points), (backward, points[::-1])):
            for point in answers:
                value = None if point["mem_gb"] < 6 else _seconds(point)
                profiler.tell(point, value, cost=point["nodes"])
    assert backward.suggest() == []


def test_pending_points_count_and_are_not_repeated() -> None:
    profiler = DecisionTreeProfiler(SPACE, budget=12, batch=5, policy="auto", model="lines")
    points = profiler.suggest(4) + profiler.suggest(4) + profiler.suggest(9)
    assert len(points) == 12
    assert len({tuple(sorted(map(str, point.items()))) for point in points}) == 12
    assert profiler.suggest() == []


def test_points_that_were_not_suggested_and_repeats_are_welcome() -> None:
    profiler = DecisionTreeProfiler(SPACE, budget=10, model="lines")
    point = {"nodes": 2, "mem_gb": 4, "codec": "gz"}
    for value in (10.0, 11.0, 12.0):
        profiler.tell(point, value)
    profiler.tell({**point, "nodes": 8}, 4.0)
    assert profiler.observations.noise == pytest.approx(1.0)
    # 9.2 % of means, of which one is of three runs.
    assert 0.37 < profiler.report()["error"]["noise_rmse"] < 1.01 / np.sqrt(3.0)
    assert len(profiler.suggest(50)) == 6


def test_a_space_that_is_exhausted_ends_the_loop() -> None:
    profiler = DecisionTreeProfiler(Space.from_dict({"a": [1, 2, 3]}), budget=10, batch=2)
    while points := profiler.suggest():
        for point in points:
            profiler.tell(point, float(point["a"]))
    assert profiler.report()["runs"] == 3


def test_predictions() -> None:
    profiler = _profiled()
    points = SPACE.decode(SPACE.draw(200, np.random.default_rng(1)))
    forecast = profiler.predict(points)
    truth = np.array([_seconds(point) for point in points])
    for column in ("median", "lower", "upper", "extrapolating", "failure_probability"):
        assert getattr(forecast, column).shape == (200,)
    assert np.mean(np.abs(forecast.median / truth - 1.0)) < 0.1
    assert np.all((forecast.lower <= forecast.median) & (forecast.median <= forecast.upper))
    assert np.mean((forecast.lower <= truth) & (truth <= forecast.upper)) > 0.75
    assert not forecast.failure_probability.any()
    assert (
        max(profiler.report()["importances"], key=profiler.report()["importances"].get) != "codec"
    )
    assert profiler.model_name == "pairs"
    assert profiler.tree_.leaf_count_ >= 1


def test_what_lies_outside_the_runs_is_extrapolated() -> None:
    profiler = DecisionTreeProfiler(Space.from_dict({"a": {"from": 0, "to": 100}}), model="lines")
    for a in (10, 20, 30, 40):
        profiler.tell({"a": a}, 2.0 * a)
    assert profiler.predict([{"a": 25}, {"a": 90}]).extrapolating.tolist() == [False, True]


def test_what_no_run_is_near_is_extrapolated() -> None:
    """Each choice and each level was run, but not both of them together; a gap is one of runs."""
    space = Space.from_dict({"codec": {"choices": ["a", "b"]}, "level": {"from": 1, "to": 9}})
    profiler = DecisionTreeProfiler(space, model="lines")
    for codec, levels in (("a", (1, 2, 3, 4)), ("b", (6, 8, 9))):
        for level in levels:
            profiler.tell({"codec": codec, "level": level}, 2.0 * level)
    at = [("a", 9), ("a", 3), ("a", 6), ("b", 7), ("b", 1)]
    forecast = profiler.predict([{"codec": codec, "level": level} for codec, level in at])
    assert forecast.extrapolating.tolist() == [True, False, False, False, True]


def test_failures_are_learned_and_kept() -> None:
    grid = [(at + 0.5) / 20 for at in range(20)]
    profiler = DecisionTreeProfiler(
        Space.from_dict({"x": grid, "y": grid}), budget=60, batch=6, model="pairs"
    )
    failed = []
    while points := profiler.suggest():
        for point in points:
            failed.append(point["x"] > 0.85)
            value = None if failed[-1] else 1.0 + point["y"]
            profiler.tell(point, value, error="out of memory" if failed[-1] else None)
    assert sum(failed[20:]) <= 4
    report = profiler.report()
    assert report["failed"] == sum(failed)
    assert report["errors"] == ["out of memory"]
    risk = profiler.predict([{"x": grid[19], "y": 0.525}, {"x": 0.225, "y": 0.525}])
    assert risk.failure_probability[0] > 0.3
    assert risk.failure_probability[1] < 0.1


def test_suggestions_avoid_where_runs_failed() -> None:
    """20 runs observed, of which those beyond an oblique line failed."""
    grid = [(at + 0.5) / 20 for at in range(20)]
    space = Space.from_dict({"x": grid, "y": grid})

    def measure(x: float, y: float) -> float | None:
        return None if x + y > 1.2 else x**2

    failed = []
    for seed in range(3):
        profiler = DecisionTreeProfiler(space, budget=60, batch=8, model="lines", random_state=seed)
        points: list[Any] = space.decode(space.draw(20, np.random.default_rng(seed)))
        for point in points:
            profiler.tell(point, measure(**point))
        for _ in range(2):
            for point in profiler.suggest():
                value = measure(**point)
                failed.append(value is None)
                profiler.tell(point, value)
    # A third of the space fails.
    assert len(failed) == 48
    assert np.mean(failed) < 0.1


def test_nothing_is_predicted_where_all_runs_failed() -> None:
    profiler = DecisionTreeProfiler(SPACE, budget=4, batch=4)
    for point in profiler.suggest():
        profiler.tell(point, None, error="no such file")
    with pytest.raises(UntrainedError, match="no such file") as refused:
        profiler.predict([{"nodes": 2, "mem_gb": 1, "codec": "gz"}])
    assert refused.value.exit_status == 3
    assert profiler.report()["failed"] == 4


def test_a_timeout_is_a_lower_bound() -> None:
    profiler = DecisionTreeProfiler(Space.from_dict({"a": list(range(20))}), model="lines")
    for a in range(0, 20, 2):
        if a < 12:
            profiler.tell({"a": a}, 10.0 * a + 5.0)
        else:
            profiler.tell({"a": a}, None, error="timeout", at_least=120.0)
    forecast = profiler.predict([{"a": 19}, {"a": 5}])
    assert forecast.median[0] > 125.0
    assert not forecast.failure_probability.any()
    assert profiler.report()["failed"] == 0


@pytest.mark.parametrize(
    "function",
    [
        lambda a, b: 0.0,
        lambda a, b: -3.0 * a,
        lambda a, b: float(a > 2),
        lambda a, b: 1e9 * a + b,
        lambda a, b: 7.0,
    ],
)
def test_metrics_of_any_sign(function: Any) -> None:
    space = Space.from_dict({"a": [0, 1, 2, 3, 4], "b": [0, 1, 2, 3, 4]})
    profiler = DecisionTreeProfiler(space, budget=12, batch=4, model="auto")
    while points := profiler.suggest():
        for point in points:
            profiler.tell(point, function(point["a"], point["b"]))
    forecast = profiler.predict(space.decode(space.pool(np.random.default_rng(0))[0]))
    assert np.isfinite(forecast.median).all()
    assert np.all(forecast.lower <= forecast.upper)


def test_several_metrics_of_a_run() -> None:
    profiler = DecisionTreeProfiler(SPACE, budget=20, policy="uni", model="lines", metric="seconds")
    while points := profiler.suggest():
        for point in points:
            profiler.tell(point, {"mb": 5.0 * point["mem_gb"], "seconds": _seconds(point)})
    point = {"nodes": 2, "mem_gb": 32, "codec": "gz"}
    assert profiler.predict([point], metric="mb").median[0] == pytest.approx(160.0, rel=0.5)
    assert profiler.predict([point]).median[0] == pytest.approx(_seconds(point), rel=0.5)
    with pytest.raises(UntrainedError, match="watts"):
        profiler.predict([point], metric="watts")


def test_costs() -> None:
    space = Space.from_dict({"a": list(range(1, 41)), "b": list(range(10))})
    spent = {}
    for weights in ((1.0, 1.0, 0.0), (1.0, 1.0, 1.0)):
        profiler = DecisionTreeProfiler(
            space, budget=40, batch=8, policy="dta", weights=weights, cost="a", model="lines"
        )
        total = 0.0
        while points := profiler.suggest():
            for point in points:
                total += point["a"]
                profiler.tell(point, np.sin(point["a"] / 4.0) * point["b"], cost=point["a"])
        spent[weights] = total
    assert spent[1.0, 1.0, 1.0] < spent[1.0, 1.0, 0.0]
    with pytest.raises(ExploreError, match="cost"):
        DecisionTreeProfiler(space, cost="price * 2")


@pytest.mark.parametrize(
    ("cost", "words"),
    [
        ("level * 2", "cost: level \\* 2 is not defined at .*'gz'"),
        ("nodes - 2", "cost: nodes - 2 is not above 0 at .*'nodes': 2"),
    ],
)
@pytest.mark.parametrize("policy", ["auto", "uni"])
def test_costs_are_those_of_all_points_before_the_first_run(
    cost: str, words: str, policy: str
) -> None:
    with pytest.raises(ExploreError, match=words):
        DecisionTreeProfiler(SPACE, cost=cost, policy=policy).suggest()


@pytest.mark.thorough
def test_a_budget_in_costs_is_kept() -> None:
    space = Space.from_dict({"a": list(range(1, 41)), "b": list(range(10))})
    profiler = DecisionTreeProfiler(
        space, budget=300, budget_in="cost", batch=4, cost="a", model="lines", policy="auto"
    )
    runs = 0
    while points := profiler.suggest():
        for point in points:
            runs += 1
            profiler.tell(point, point["a"] * 2.0)
    assert profiler.spent <= 300.0
    assert runs >= 15


@pytest.mark.parametrize("policy", ["auto", "dta", "uni"])
def test_a_budget_in_costs_is_used_up(policy: str) -> None:
    """Points that cost too much for the rest are passed over, not the end."""
    space = Space.from_dict({"a": list(range(1, 41)), "b": list(range(10))})
    profiler = DecisionTreeProfiler(
        space, budget=150, budget_in="cost", batch=4, cost="a", model="lines", policy=policy
    )
    chosen = set()
    while points := profiler.suggest():
        for point in points:
            chosen.add((point["a"], point["b"]))
            profiler.tell(point, point["a"] * 2.0)
    least = min(a for a in range(1, 41) for b in range(10) if (a, b) not in chosen)
    assert 150.0 - least < profiler.spent <= 150.0


def test_a_budget_in_costs_is_used_up_in_a_space_that_is_not_listed() -> None:
    space = Space.from_dict({name: {"from": 0.0, "to": 1.0} for name in "abcd"})
    profiler = DecisionTreeProfiler(
        space, budget=50, budget_in="cost", batch=4, cost="1 + 100*a", model="lines", policy="panic"
    )
    while points := profiler.suggest():
        for point in points:
            profiler.tell(point, point["a"] + point["b"])
    assert profiler.spent > 40.0


@given(prices=st.lists(st.floats(0.01, 10.0), max_size=12), left=st.floats(-1.0, 30.0))
def test_what_is_not_paid_for_is_passed_over(prices: list[float], left: float) -> None:
    paid = within_means(np.array(prices), left)
    spent = float(np.array(prices)[paid].sum())
    assert spent <= max(left, 0.0) + 1e-9
    assert all(
        price > left - spent - 1e-9
        for price, is_paid in zip(prices, paid, strict=True)
        if not is_paid
    )


def test_it_stops_once_enough_is_known() -> None:
    space = Space.from_dict({"a": list(range(1, 31)), "b": list(range(1, 31))})
    profiler = DecisionTreeProfiler(
        space, budget=200, batch=10, stop_pct=5.0, model="lines", policy="uni"
    )
    while points := profiler.suggest():
        for point in points:
            profiler.tell(point, 50.0 + point["a"] + 2.0 * point["b"])
    assert profiler.stopped
    assert profiler.report()["runs"] < 60


@pytest.mark.parametrize(
    ("settings", "word"),
    [
        ({"budget": 1}, "budget"),
        ({"budget": 10.5}, "budget"),
        ({"budget": float("nan"), "budget_in": "cost"}, "budget"),
        ({"batch": 0}, "batch"),
        ({"policy": "best"}, "policy"),
        ({"model": "svm"}, "model"),
        ({"weights": (1.0, 2.0)}, "weights"),
        ({"weights": (1.0, 2.0, float("inf"))}, "weights"),
        ({"weights": (0.0, 0.0, -1e308)}, "weights"),
        ({"level": 1.0}, "level"),
        ({"stop_pct": -1.0}, "stop_pct"),
        ({"random_state": -1}, "random_state"),
        ({"cost": 3}, "cost"),
    ],
)
def test_settings_that_are_refused(settings: Any, word: str) -> None:
    with pytest.raises(ExploreError, match=word) as refused:
        DecisionTreeProfiler(SPACE, **settings)
    assert refused.value.exit_status == 2


@pytest.mark.parametrize("weights", [(0.0, 0.0, -1e100), (1e100, 1e100, 1e100)])
def test_the_largest_weights_use_up_the_budget(weights: tuple[float, float, float]) -> None:
    profiler = _profiled(policy="dta", budget=20, weights=weights, cost="nodes")
    assert profiler.report()["runs"] == 20


@pytest.mark.parametrize(
    ("value", "options"),
    [
        (float("nan"), {}),
        (float("inf"), {}),
        ("12", {}),
        (True, {}),
        ({}, {}),
        (1.0, {"cost": -1.0}),
        (1.0, {"cost": float("nan")}),
        (1.0, {"error": "failed"}),
    ],
)
def test_observations_that_are_refused(value: Any, options: Any) -> None:
    profiler = DecisionTreeProfiler(SPACE)
    with pytest.raises(ExploreError):
        profiler.tell({"nodes": 2, "mem_gb": 4, "codec": "gz"}, value, **options)
    with pytest.raises(ExploreError, match=r"forbid\[0\]"):
        profiler.tell({"nodes": 8, "mem_gb": 64, "codec": "gz"}, 1.0)
    assert profiler.report()["runs"] == 0


def test_documents_that_are_refused() -> None:
    document = json.loads(DecisionTreeProfiler(SPACE).to_json())
    with pytest.raises(IncompatibleError, match="version 99"):
        DecisionTreeProfiler.from_json(json.dumps({**document, "version": 99}))
    with pytest.raises(InputError, match="damaged"):
        DecisionTreeProfiler.from_json(json.dumps({**document, "suggested": 3}))
    for text in ("{", "[]", "12"):
        with pytest.raises(InputError):
            DecisionTreeProfiler.from_json(text)


@pytest.mark.parametrize(
    "model",
    [
        pytest.param(name, marks=pytest.mark.thorough) if name in SLOW_LEARNERS else name
        for name in LEARNERS
    ],
)
def test_no_points_have_no_predictions(model: str) -> None:
    profiler = DecisionTreeProfiler(LINE, budget=30, model=model)
    for at in range(1, 25):
        profiler.tell({"a": at}, float(at))
    assert len(profiler.predict([]).median) == 0


def test_a_bound_says_nothing_of_a_point_that_was_measured() -> None:
    profiler = DecisionTreeProfiler(LINE, budget=20, model="lines")
    for at in range(1, 7):
        profiler.tell({"a": at}, 100.0 + at)
    before = profiler.predict([{"a": 3}])
    profiler.tell({"a": 3}, None, at_least=10.0)
    assert profiler.predict([{"a": 3}]).median == before.median
    assert profiler.report()["error"]["noise_rmse"] is None


def test_of_several_bounds_the_largest_counts() -> None:
    profiler = DecisionTreeProfiler(LINE, budget=20, model="lines")
    for at in (1, 2, 3, 5, 6):
        profiler.tell({"a": at}, 10.0)
    for bound in (300.0, 1000.0, 20.0):
        profiler.tell({"a": 4}, None, at_least=bound)
    means = profiler.observations.means
    assert means.max() == 1000.0
    assert len(means) == 6


def test_of_a_point_of_which_most_runs_were_ended_only_a_bound_is_known() -> None:
    profiler = DecisionTreeProfiler(LINE, budget=40, model="lines")
    for at in range(1, 9):
        profiler.tell({"a": at}, 51.0 + at)
    for ended in range(3):
        assert profiler.observations.censored.sum() == (ended > 1)
        profiler.tell({"a": 8}, None, at_least=60.0 + ended)
    seen = profiler.observations
    assert (seen.means[-1], seen.counts[-1], len(seen.observed)) == (62.0, 1, 8)
    assert [8.0] not in seen.repeatable.tolist()
    forecast = profiler.predict([{"a": 8}, {"a": 3}])
    assert forecast.median[0] >= forecast.lower[0] >= 62.0
    assert forecast.extrapolating.tolist() == [True, False]
    again = DecisionTreeProfiler.from_json(profiler.to_json())
    assert again.suggest() == profiler.suggest()


def test_bounds_below_what_was_measured_do_not_outvote_it() -> None:
    """As of runs that were ended at a limit that was raised since."""
    profiler = DecisionTreeProfiler(LINE, budget=40, model="lines")
    profiler.tell({"a": 2}, 5.0)
    for bound in (10.0, 10.0, 10.0):
        profiler.tell({"a": 1}, None, at_least=bound)
    profiler.tell({"a": 1}, 30.0)
    assert profiler.observations.means.tolist() == [30.0, 5.0]
    assert not profiler.observations.censored.any()


@given(
    st.lists(
        st.tuples(st.integers(1, 3), st.integers(1, 5), st.booleans()), min_size=1, max_size=20
    ),
    st.randoms(use_true_random=False),
)
def test_points_are_the_same_in_whatever_order_runs_are_told(
    runs: list[tuple[int, int, bool]], random: Any
) -> None:
    both = []
    for _ in range(2):
        profiler = DecisionTreeProfiler(LINE, budget=40, model="lines")
        for at, value, ended in runs:
            taken = {"value": None, "at_least": float(value)} if ended else {"value": float(value)}
            profiler.tell({"a": at}, **taken)
        both.append(profiler.observations)
        random.shuffle(runs)
    for ours, theirs in zip(*both, strict=True):
        assert np.array_equal(ours, theirs)
    assert len(both[0].means) == len({at for at, *_ in runs})
    assert (both[0].counts[both[0].censored] == 1).all()


def test_where_the_nearest_run_was_ended_a_prediction_extrapolates() -> None:
    profiler = DecisionTreeProfiler(LINE, budget=40, model="lines")
    for at in range(1, 31):
        seconds = float(np.exp(at / 5.0))
        if seconds > 60.0:
            profiler.tell({"a": at}, None, at_least=60.0)
        else:
            profiler.tell({"a": at}, seconds)
    known, ended = profiler.predict([{"a": 5}, {"a": 28}]).extrapolating
    assert not known
    assert ended


def test_a_space_of_which_little_is_allowed_fills_the_budget() -> None:
    """One point in 10,000 of 10^12, and one in 300 runs of it none twice."""
    rare = Space.from_dict({name: list(range(100)) for name in "abcdef"}, ["a != b or c != d"])
    profiler = DecisionTreeProfiler(rare, budget=300, batch=150, policy="uni", model="lines")
    seen = []
    while points := profiler.suggest():
        seen += [tuple(point.values()) for point in points]
        for point in points:
            profiler.tell(point, float(point["a"]))
        if len(seen) < 300:
            again = DecisionTreeProfiler.from_json(profiler.to_json())
            profiler = DecisionTreeProfiler.from_json(again.to_json())
            assert again.suggest() == DecisionTreeProfiler.from_json(profiler.to_json()).suggest()
    assert len(seen) == len(set(seen)) == 300


def test_a_space_of_which_little_is_allowed_is_used_up() -> None:
    """One point in 10,000 of ten million."""
    rare = Space.from_dict({"x": {"from": 1, "to": 10_000_000}}, ["x % 10000 != 77"])
    profiler = DecisionTreeProfiler(rare, budget=1200, batch=400, policy="uni", model="lines")
    seen = set()
    while points := profiler.suggest():
        for point in points:
            seen.add(point["x"])
            profiler.tell(point, float(point["x"]))
        profiler = DecisionTreeProfiler.from_json(profiler.to_json())
        assert profiler.points_left == 1000 - len(seen)
    assert len(seen) == 1000


def test_a_campaign_that_began_with_draws_goes_on_with_the_list() -> None:
    rare = Space.from_dict({"x": {"from": 1, "to": 10_000_000}}, ["x % 2000000 != 77"])
    document = json.loads(DecisionTreeProfiler(rare, budget=9, policy="uni").to_json())
    del document["checksum"]
    drawn = KIND.seal(document | {"drawn": 20})
    profiler = DecisionTreeProfiler.from_json(json.dumps(drawn))
    assert len(profiler.suggest(9)) == 5
    assert profiler.suggest() == []


@pytest.mark.parametrize("value", [None, 0.0, -3.0])
def test_a_budget_of_costs_ends_where_no_cost_is_known(value: float | None) -> None:
    profiler = DecisionTreeProfiler(LINE, budget=100, batch=3, budget_in="cost", policy="uni")
    runs = 0
    while points := profiler.suggest():
        for point in points:
            profiler.tell(point, value)
            runs += 1
    assert runs < 30
    assert profiler.spent >= 80.0


@pytest.mark.parametrize("cost", [None, "told"])
def test_a_budget_of_costs_ends_before_the_first_answer(cost: str | None) -> None:
    """As where a queue is filled for many workers."""
    profiler = DecisionTreeProfiler(
        LINE, budget=10, batch=3, budget_in="cost", cost=cost, policy="uni"
    )
    suggested = 0
    while suggested < 30 and (points := profiler.suggest()):
        suggested += len(points)
    assert suggested == 20


@pytest.mark.parametrize("space", [LINE, Space.from_dict({"a": {"from": 0.0, "to": 1.0}})])
@pytest.mark.parametrize("repeats", [False, True])
@pytest.mark.parametrize("first", [0.0, 2.0])
def test_a_budget_of_costs_ends_where_runs_cost_nothing(
    monkeypatch: pytest.MonkeyPatch, space: Space, repeats: bool, first: float
) -> None:
    """As with answers from a cache."""
    monkeypatch.setattr("kongming.explore.profiler._FREE_RUNS", 100)
    profiler = DecisionTreeProfiler(
        space, budget=10, batch=8, budget_in="cost", cost="told", policy="uni", repeats=repeats
    )
    costs = [first]
    while points := profiler.suggest():
        assert len(costs) <= 100
        for point in points:
            profiler.tell(point, point["a"], cost=costs[-1])
            costs.append(0.0)
    runs = len(costs) - 1
    assert profiler.spent == first
    assert profiler.left == pytest.approx(10.0 - first - 0.1 * costs[:-1].count(0.0))
    if space.size is None:
        assert runs == (80 if first else 100)
        assert profiler.left <= 0.1
    else:
        # Repeats that are all alike end it, too.
        assert runs >= space.size
        assert not profiler.is_spent


def test_runs_that_cost_nothing_leave_what_others_may_spend() -> None:
    profiler = DecisionTreeProfiler(
        LINE, budget=100, batch=5, budget_in="cost", cost="told", policy="uni"
    )
    lefts = []
    for _ in range(4):
        for point in profiler.suggest():
            profiler.tell(point, 1.0, cost=0.0)
        lefts.append(profiler.left)
    assert profiler.spent == 0.0
    assert lefts == [pytest.approx(each) for each in (99.5, 99.0, 98.5, 98.0)]
    [point] = profiler.suggest(1)
    profiler.tell(point, 1.0, cost=1.0)
    assert profiler.spent == 1.0
    assert profiler.left == pytest.approx(97.0)
    assert profiler.suggest()


@pytest.mark.parametrize("costs", [(), (0.0,), (0.0, None), (None,), (0.0, 2.0)])
def test_a_budget_of_costs_ends_while_answers_are_awaited(
    monkeypatch: pytest.MonkeyPatch, costs: tuple[float | None, ...]
) -> None:
    """Also in a space without an end, after answers that cost nothing or are of unknown cost."""
    monkeypatch.setattr("kongming.explore.profiler._FREE_RUNS", 100)
    space = Space.from_dict({"a": {"from": 0.0, "to": 1.0}})
    profiler = DecisionTreeProfiler(
        space, budget=10, batch=50, budget_in="cost", cost="told", policy="uni"
    )
    for cost in costs:
        [point] = profiler.suggest(1)
        profiler.tell(point, None, error="refused", cost=cost)
    suggested = 0
    while points := profiler.suggest():
        suggested += len(points)
        assert suggested <= 100
    assert suggested


def test_a_run_of_unknown_cost_counts_as_the_others_do() -> None:
    profiler = DecisionTreeProfiler(LINE, budget=100, budget_in="cost")
    for at, seconds in ((1, 10.0), (2, 30.0)):
        profiler.tell({"a": at}, seconds)
    profiler.tell({"a": 3}, None, error="out of memory")
    profiler.tell({"a": 4}, None, error="refused", cost=0.0)
    assert profiler.spent == pytest.approx(10 + 30 + 40 / 3)


def test_a_run_that_measured_another_metric_is_not_suggested_again() -> None:
    profiler = DecisionTreeProfiler(
        Space.from_dict({"a": [1, 2, 3]}), budget=10, batch=3, metric="rate", policy="uni"
    )
    for point in profiler.suggest():
        profiler.tell(point, {"seconds": 1.0})
    assert profiler.suggest() == []


@pytest.mark.parametrize("policy", ["uni", "auto"])
def test_noise_is_repeated_until_it_is_told_from_errors(policy: str) -> None:
    """Noise of 10 % hides that a line is known within 15 %."""
    stopped = [noisy_line(policy, seed, noise=0.1) for seed in range(3)]
    assert sum(profiler.stopped for profiler in stopped) >= 2
    for profiler in stopped:
        assert 3 <= profiler.observations.repeats <= len(profiler.observations.observed) / 3.0 + 10


def test_a_batch_repeats_no_point_twice() -> None:
    """Also where nothing else is left to run, and the policy repeats points by itself."""
    space = Space.from_dict({"a": list(range(1, 35))})
    for seed in range(5):
        profiler = DecisionTreeProfiler(
            space, budget=60, batch=16, stop_pct=20.0, model="lines", random_state=seed
        )
        rng = np.random.default_rng(seed)
        for a in range(1, 35):
            profiler.tell({"a": a}, float((50 + 2 * a) * rng.normal(1.0, 0.12)))
        points = [point["a"] for point in profiler.suggest()]
        assert len(points) == len(set(points)) <= 8


def test_what_was_ended_is_not_repeated() -> None:
    space = Space.from_dict({"a": list(range(1, 31)), "b": list(range(1, 31))})
    profiler = DecisionTreeProfiler(
        space, budget=90, batch=10, stop_pct=15.0, model="lines", policy="uni", random_state=3
    )
    rng = np.random.default_rng(3)
    ended: list[tuple[Any, Any]] = []
    while points := profiler.suggest():
        for point in points:
            if point["a"] > 22:
                ended.append((point["a"], point["b"]))
                profiler.tell(point, None, at_least=60.0)
            else:
                profiler.tell(point, float((20.0 + point["a"]) * rng.normal(1.0, 0.1)))
    assert profiler.observations.repeats >= 3
    assert len(ended) == len(set(ended))


def test_auto_does_not_repeat_what_was_ended() -> None:
    space = Space.from_dict({"x": list(range(31)), "y": list(range(31))})
    for seed in range(2):
        profiler = DecisionTreeProfiler(space, budget=60, batch=12, random_state=seed)
        rng = np.random.default_rng(seed)
        points: list[Any] = space.decode(space.draw(45, rng))
        ended = []
        for point in points:
            mean = 10.0 + point["x"] * point["y"] / 10.0
            if mean > 50.0:
                ended.append(point)
                profiler.tell(point, None, at_least=50.0)
            else:
                profiler.tell(point, float(mean * np.exp(rng.normal(0.0, 0.15))))
        assert not [point for point in profiler.suggest() if point in ended]


def test_auto_goes_on_where_runs_are_more_than_a_process_takes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for module in ("learners.gaussian_process", "policies.auto"):
        monkeypatch.setattr(f"kongming.explore.{module}.MOST", 40)
    space = Space.from_dict({"x": list(range(20)), "y": list(range(20))})
    profiler = DecisionTreeProfiler(space, budget=100, batch=5)
    points: list[Any] = space.decode(space.draw(60, np.random.default_rng(0)))
    for point in points:
        profiler.tell(point, 1.0 + point["x"] * point["y"])
    suggested = profiler.suggest()
    assert len(suggested) == 5
    assert not [point for point in suggested if point in points]


@pytest.mark.parametrize(("good", "bad"), [(19, 1), (4, 1), (1, 4)])
def test_the_probability_of_failure_is_that_of_a_run(good: int, bad: int) -> None:
    profiler = DecisionTreeProfiler(Space.from_dict({"a": list(range(11))}), model="lines")
    for at in range(11):
        for _ in range(good):
            profiler.tell({"a": at}, 5.0 + at)
        for _ in range(bad):
            profiler.tell({"a": at}, None, error="killed")
    risk = profiler.predict([{"a": 2}, {"a": 8}]).failure_probability
    assert risk == pytest.approx(bad / (good + bad), abs=0.06)


def test_a_run_that_was_ended_did_not_fail() -> None:
    profiler = DecisionTreeProfiler(Space.from_dict({"a": list(range(11))}), model="lines")
    for at in range(11):
        profiler.tell({"a": at}, 5.0 + at)
        for _ in range(8):
            profiler.tell({"a": at}, None, at_least=4.0)
        profiler.tell({"a": at}, None, error="killed")
    risk = profiler.predict([{"a": 2}, {"a": 8}]).failure_probability
    assert risk == pytest.approx(0.1, abs=0.05)


def test_it_does_not_stop_where_half_of_the_space_was_only_ended() -> None:
    space = Space.from_dict({"x": list(range(200))})
    profiler = DecisionTreeProfiler(
        space, budget=90, batch=10, policy="uni", model="tree", stop_pct=10.0
    )
    while points := profiler.suggest():
        for point in points:
            if point["x"] < 100:
                profiler.tell(point, 10.0 + 0.1 * point["x"])
            else:
                profiler.tell(point, None, at_least=100.0)
    assert not profiler.stopped
    assert profiler.report()["runs"] == 90


@pytest.mark.parametrize("measured", [0, 1])
def test_it_does_not_stop_where_next_to_nothing_was_measured(measured: int) -> None:
    """The bounds are all alike, and tell nothing of what they bound."""
    profiler = DecisionTreeProfiler(
        Space.from_dict({"x": list(range(200))}), budget=60, batch=10, policy="uni", stop_pct=10.0
    )
    while points := profiler.suggest():
        for point in points:
            if len(profiler.observations.means) < measured:
                profiler.tell(point, 100.0)
            else:
                profiler.tell(point, None, at_least=100.0)
    assert not profiler.stopped


@pytest.mark.parametrize("measured", [0, 1])
def test_by_bounds_alone_nothing_is_predicted(measured: int) -> None:
    """A time limit is the same for all runs: it would be an interval without a width."""
    profiler = DecisionTreeProfiler(LINE, budget=40, model="lines", metric="seconds")
    for _ in range(2 * measured):
        profiler.tell({"a": 20}, 10.0)
    for at in range(1, 13):
        profiler.tell({"a": at}, None, at_least=10.0)
    for use in (lambda: profiler.predict([{"a": 19}]), lambda: profiler.tree_):
        with pytest.raises(UntrainedError, match=f"with a value of 'seconds': {measured}; .*: 12;"):
            use()
    report = profiler.report()
    assert report["model"] is None
    assert "error" not in report
    assert report["timed_out"] == 12
    assert profiler.suggest()
    profiler.tell({"a": 19}, 9.0)
    profiler.tell({"a": 18}, 8.0)
    assert profiler.predict([{"a": 19}]).lower < 10.0
    assert profiler.report()["error"]["rmse"] > 0.0


def ended_below_3(at_least: Any) -> DecisionTreeProfiler:
    """Runs of 1 to 8 of ``a``: operations per second rise with it, and the seconds fall."""
    profiler = DecisionTreeProfiler(LINE, metric="qps", model="lines")
    for at in range(1, 9):
        if at < 3:
            profiler.tell({"a": at}, None, at_least=at_least)
        else:
            profiler.tell({"a": at}, {"qps": float(at), "seconds": 100.0 / at})
    return profiler


def test_a_bound_is_of_the_metric_that_is_named() -> None:
    profiler = ended_below_3({"seconds": 600.0})
    known = profiler.predict([{"a": at} for at in (1, 5, 8)])
    assert known.median == pytest.approx([1.0, 5.0, 8.0])
    assert known.failure_probability[0] > 0.5 > known.failure_probability[2]
    ended = profiler.predict([{"a": 1}, {"a": 2}], metric="seconds")
    assert (ended.lower >= 600.0).all()
    assert ended.extrapolating.all()
    assert not ended.failure_probability.any()
    report = profiler.report()
    assert (report["failed"], report["timed_out"]) == (2, 0)
    assert not {1, 2} & {point["a"] for point in profiler.suggest(28)}


def test_runs_without_a_value_or_bound_of_the_guide_are_avoided_as_failed_ones() -> None:
    """Half of the space ends at a limit of the seconds, of which operations per second guide."""

    def points_after(**ended: Any) -> list[Any]:
        space = Space.from_dict({"x": {"from": 0.0, "to": 1.0}, "y": {"from": 0.0, "to": 1.0}})
        profiler = DecisionTreeProfiler(space, metric="qps", budget=40, model="lines")
        points = []
        while batch := profiler.suggest():
            points += batch
            for point in batch:
                if point["x"] > 0.5:
                    profiler.tell(point, None, **ended)
                else:
                    profiler.tell(point, {"qps": 5.0 + point["x"], "seconds": point["y"] + 1.0})
        return points

    bounded = points_after(at_least={"seconds": 600.0})
    assert bounded == points_after(error="timeout")
    assert sum(point["x"] > 0.5 for point in bounded) < 10


def test_a_bound_without_a_name_is_of_the_metric_that_guides() -> None:
    bounds = ended_below_3(0.5), ended_below_3({"qps": 0.5})
    first, second = (profiler.predict([{"a": 1}, {"a": 9}]) for profiler in bounds)
    assert np.array_equal(first.lower, second.lower)
    assert (first.lower[0], first.extrapolating[0]) >= (0.5, True)
    assert not first.failure_probability.any()
    for profiler in bounds:
        assert (profiler.report()["failed"], profiler.report()["timed_out"]) == (0, 2)
        of_seconds = profiler.predict([{"a": 3}, {"a": 1}], metric="seconds")
        assert not of_seconds.extrapolating[0]
        assert of_seconds.failure_probability[1] > 0.5


def test_a_metric_that_was_only_bounded_guides_until_another_is_measured() -> None:
    profiler = DecisionTreeProfiler(LINE)
    profiler.tell({"a": 1}, None, at_least={"seconds": 9.0})
    assert profiler.report()["metric"] == "seconds"
    profiler.tell({"a": 2}, {"qps": 5.0, "seconds": 7.0})
    assert profiler.report()["metric"] == "qps"


def test_named_bounds_are_kept_in_a_newer_document_and_all_else_in_the_older() -> None:
    named, plain = ended_below_3({"seconds": 600.0}), ended_below_3(0.5)
    for profiler, version in ((named, 2), (plain, 1)):
        saved = profiler.to_json()
        assert json.loads(saved)["version"] == version
        again = DecisionTreeProfiler.from_json(saved)
        assert again.to_json() == saved
        assert again.suggest() == profiler.suggest()


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({}, "at_least: has no metric"),
        ({5: 1.0}, "at_least: is no name of a metric. Found '5'"),
        ({"seconds": "long"}, "at_least.seconds: is not a number. Found \"'long'\""),
        ({"seconds": float("inf")}, "at_least.seconds: is not finite"),
    ],
)
def test_a_bound_that_is_none_is_refused(wrong: Any, words: str) -> None:
    profiler = DecisionTreeProfiler(LINE)
    with pytest.raises(ExploreError, match=re.escape(words)):
        profiler.tell({"a": 1}, None, at_least=wrong)
    assert profiler.report()["runs"] == 0


def test_where_a_run_was_ended_no_prediction_is_below_its_bound() -> None:
    profiler = DecisionTreeProfiler(Space.from_dict({"x": list(range(31))}), model="lines")
    for at in range(12):
        profiler.tell({"x": at}, 5.0 + 0.1 * at)
    ended = [15, 20, 25, 30]
    for at in ended:
        profiler.tell({"x": at}, None, at_least=100.0)
    forecast = profiler.predict([{"x": at} for at in ended])
    assert (forecast.lower >= 100.0).all()
    assert (forecast.median >= forecast.lower).all()
    assert (forecast.upper > forecast.median).all()
    assert forecast.extrapolating.all()


def test_the_error_and_the_noise_floor_are_of_the_same_quantity() -> None:
    """On an exact line all that is missed is noise."""
    profiler = DecisionTreeProfiler(Space.from_dict({"x": list(range(30))}), model="lines")
    rng = np.random.default_rng(0)
    for at in range(30):
        for _ in range(9):
            profiler.tell({"x": at}, float((20.0 + at) * rng.normal(1.0, 0.1)))
    error = profiler.report()["error"]
    assert 0.7 < error["mre_pct"] / error["noise_pct"] < 1.5
    assert 0.7 < error["rmse"] / error["noise_rmse"] < 1.5


@pytest.mark.parametrize("repeated", [range(5), range(15, 20)])
def test_the_noise_floor_does_not_depend_on_which_points_were_repeated(repeated: range) -> None:
    """Times of 1 to 1000 that vary by 10 %: the shortest or the longest were run again."""
    profiler = DecisionTreeProfiler(Space.from_dict({"x": list(range(20))}), model="lines")
    rng = np.random.default_rng(0)
    times = np.geomspace(1.0, 1000.0, 20)
    for at in [*range(20), *(at for at in repeated for _ in range(10))]:
        profiler.tell({"x": at}, float(times[at] * np.exp(0.1 * rng.normal())))
    seen = profiler.observations
    floor = profiler.report()["error"]["noise_rmse"]
    assert 0.7 < floor / (0.1 * np.sqrt(np.mean(times**2 / seen.counts))) < 1.4


@pytest.mark.parametrize("lowest", [-1000.0, 0.0])
def test_noise_of_values_that_are_not_above_0_is_alike_everywhere(lowest: float) -> None:
    profiler = DecisionTreeProfiler(Space.from_dict({"x": list(range(20))}), model="lines")
    for at in range(20):
        for noise in (0.0, 2.0):
            profiler.tell({"x": at}, lowest + 50.0 * at + noise)
    assert profiler.report()["error"]["noise_rmse"] == pytest.approx(1.0)


def test_a_value_without_a_name_is_of_the_metric_that_was_told_before() -> None:
    profiler = DecisionTreeProfiler(LINE, model="lines")
    for at in range(1, 7):
        profiler.tell({"a": at}, {"time": float(at)} if at < 4 else float(at))
    assert len(profiler.observations.means) == 6
    assert profiler.report()["metric"] == "time"


def test_a_metric_that_no_run_has_is_named_next_to_those_that_runs_have() -> None:
    profiler = DecisionTreeProfiler(LINE, metric="thruput", model="lines")
    for at in range(1, 5):
        profiler.tell({"a": at}, {"throughput": float(at), "seconds": 1.0})
    profiler.tell({"a": 5}, None, at_least={"joules": 5.0})
    report = profiler.report()
    assert (report["metric"], report["model"]) == ("thruput", None)
    assert report["metrics"] == ["joules", "seconds", "throughput"]
    words = r"'thruput': 0; .* Metrics of the runs: joules, seconds, throughput\."
    with pytest.raises(UntrainedError, match=words):
        profiler.predict([{"a": 1}])
    assert profiler.predict([{"a": 4}], metric="throughput").median == pytest.approx(4.0)


def test_without_noise_few_points_are_repeated() -> None:
    profiler = noisy_line("uni", seed=0, noise=0.0)
    assert profiler.stopped
    assert profiler.observations.repeats == 3


def noisy_line(policy: str, seed: int, noise: float) -> DecisionTreeProfiler:
    space = Space.from_dict({"a": list(range(1, 31)), "b": list(range(1, 31))})
    profiler = DecisionTreeProfiler(
        space,
        budget=200,
        batch=10,
        stop_pct=15.0,
        model="lines",
        policy=policy,
        random_state=seed,
    )
    rng = np.random.default_rng(seed)
    while points := profiler.suggest():
        for point in points:
            exact = 50.0 + point["a"] + 2.0 * point["b"]
            profiler.tell(point, float(exact * rng.normal(1.0, noise)))
    return profiler


def test_that_it_stopped_is_kept() -> None:
    profiler = DecisionTreeProfiler(LINE, budget=1000, batch=5, stop_pct=10, model="lines")
    for at in range(1, 31):
        profiler.tell({"a": at}, float(at))
    assert profiler.suggest() == []
    assert profiler.stopped
    assert DecisionTreeProfiler.from_json(profiler.to_json()).report() == profiler.report()


@pytest.mark.parametrize("metric", ["", 5, ["seconds"]])
def test_a_metric_has_a_name(metric: Any) -> None:
    with pytest.raises(ExploreError, match="metric: is not a name"):
        DecisionTreeProfiler(LINE, metric=metric)


@pytest.mark.parametrize(
    ("options", "field"),
    [({"at_least": 1.0}, "at_least"), ({"error": "late"}, "error"), ({"cost": 1e200}, "cost")],
)
def test_what_is_told_wrongly_is_named(options: dict[str, Any], field: str) -> None:
    with pytest.raises(ExploreError, match=f"^{field}: "):
        DecisionTreeProfiler(LINE).tell({"a": 1}, 1.0, **options)


def test_a_model_is_that_of_the_pool_which_a_resumed_profiler_has() -> None:
    rare = Space.from_dict(
        {"a": {"from": 0.0, "to": 1.0}, "b": {"from": 0.0, "to": 1.0}}, ["a + b > 0.01"]
    )
    profiler = DecisionTreeProfiler(rare, budget=400, batch=20, policy="uni", model="lines")
    for point in profiler.suggest():
        profiler.tell(point, float(point["a"]) ** 2)
    profiler.report()
    profiler.suggest(230)
    assert DecisionTreeProfiler.from_json(profiler.to_json()).report() == profiler.report()


def test_least_squares_stand_in_until_there_are_points_enough() -> None:
    profiler = DecisionTreeProfiler(LINE, model="boosting")
    for at in (1, 2, 3):
        profiler.tell({"a": at}, float(at))
    assert profiler.report()["model"] == "lines"


@pytest.mark.parametrize(("model", "fewest"), [("perceptrons", 6), ("boosting", 20), ("lines", 2)])
def test_a_budget_that_is_too_small_for_a_named_model_is_refused(model: str, fewest: int) -> None:
    space = Space.from_dict({"x": {"from": 0.0, "to": 1.0}})
    DecisionTreeProfiler(space, budget=fewest, model=model)
    with pytest.raises(ExploreError, match=rf"^budget: .*Allowed: .*{fewest}"):
        DecisionTreeProfiler(space, budget=fewest - 1, model=model)


def test_a_saved_profiler_with_too_small_a_budget_for_its_model_is_read() -> None:
    space = Space.from_dict({"x": {"from": 0.0, "to": 1.0}})
    saved = json.loads(DecisionTreeProfiler(space, budget=6, model="perceptrons").to_json())
    payload = {k: v for k, v in saved.items() if k not in ("format", "version", "checksum")}
    assert payload["settings"]["budget"] == 6
    payload["settings"]["budget"] = 3
    read = DecisionTreeProfiler.from_json(json.dumps(KIND.seal(payload)))
    assert (read.model, read.budget) == ("perceptrons", 3)


@pytest.mark.parametrize(
    "wrong",
    [
        {"codes": [8.0, 1.0, 7.0, None]},
        {"codes": [3.0, 1.0, 0.0, None]},
        {"codes": [8.0, 64.0, 0.0, None]},
        {"codes": [8.0, 1.5, 0.0, None]},
        {"codes": [None, 1.0, 0.0, None]},
        {"codes": [8.0, 1.0, 0.0, 2.0]},
        {"codes": [8.0, 1.0, 0.0]},
        {"values": {"value": 1e200}},
        {"values": {"value": "abc"}},
        {"values": {}},
        {"values": [1.0]},
        {"values": None},
        {"values": None, "at_least": "x"},
        {"values": None, "at_least": {}},
        {"values": None, "at_least": {"seconds": None}},
        {"values": None, "error": 5},
        {"at_least": 1.0},
        {"cost": -1.0},
    ],
)
def test_runs_that_no_profiler_was_told_are_damage(wrong: dict[str, Any]) -> None:
    """A checksum can be renewed by whoever edits a document."""
    profiler = DecisionTreeProfiler(SPACE)
    profiler.tell({"nodes": 8, "mem_gb": 1, "codec": "gz"}, 3.0, cost=2.0)
    saved = json.loads(profiler.to_json())
    payload = {k: v for k, v in saved.items() if k not in ("format", "version", "checksum")}
    assert DecisionTreeProfiler.from_json(json.dumps(KIND.seal(payload))).observations.means == 3.0
    payload["runs"][0] |= wrong
    with pytest.raises(InputError, match="damaged"):
        DecisionTreeProfiler.from_json(json.dumps(KIND.seal(payload)))


def test_a_reason_that_is_no_unicode_does_not_spoil_what_is_saved() -> None:
    profiler = DecisionTreeProfiler(Space.from_dict({"x": [1, 2, 3]}), budget=3)
    profiler.tell({"x": 1}, None, error="cannot open \udcff")
    assert DecisionTreeProfiler.from_json(profiler.to_json()).to_json() == profiler.to_json()
    with pytest.raises(ExploreError, match="name of a metric"):
        profiler.tell({"x": 2}, {"\udcff": 1.0})


def test_a_budget_of_runs_may_be_written_as_a_float() -> None:
    space = Space.from_dict({"x": [1, 2, 3]})
    assert DecisionTreeProfiler(space, budget=3.0).budget == 3
    with pytest.raises(ExploreError, match=r"^budget: "):
        DecisionTreeProfiler(space, budget=2.5)


@pytest.mark.parametrize("setting", ["rebuild", "repeats"])
@pytest.mark.parametrize("value", ["false", "no", 1, None])
def test_a_setting_that_is_true_or_false_is_nothing_else(setting: str, value: Any) -> None:
    with pytest.raises(ExploreError, match=f"^{setting}: is neither .* Allowed: True, False"):
        DecisionTreeProfiler(LINE, **{setting: value})
    profiler = DecisionTreeProfiler(LINE, **{setting: np.bool_(False)})
    assert getattr(profiler, setting) is False
    assert json.loads(profiler.to_json())["settings"][setting] is False


def test_weights_may_be_an_array() -> None:
    profiler = DecisionTreeProfiler(LINE, weights=np.array([1, 1, 0]))
    assert profiler.weights == (1.0, 1.0, 0.0)
    for wrong in (np.ones(2), np.array(3.0), np.ones((3, 1)), np.array([1.0, np.nan, 0.0])):
        with pytest.raises(ExploreError, match=r"^weights: "):
            DecisionTreeProfiler(LINE, weights=wrong)


def test_a_run_that_cost_nothing_does_not_decide_what_the_others_cost() -> None:
    space = Space.from_dict({"x": {"from": 0.0, "to": 1.0}})
    codes = [(place / 15.0,) for place in range(16)]
    price = learned(space, codes, [0.0] + [10.0] * 15)
    assert price is not None
    assert price(np.array([[0.2], [0.9]])) == pytest.approx([10.0, 10.0])
