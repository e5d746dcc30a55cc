"""How policies divide and place runs."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from scipy.spatial import cKDTree

from kongming.explore import DecisionTreeProfiler, Space
from kongming.explore.features import Features
from kongming.explore.policies import POLICIES
from kongming.explore.policies.auto import importance
from kongming.explore.policies.dta import apportion, scores
from kongming.explore.policies.spreading import farthest_paid
from kongming.explore.profiler import KIND
from tests.variants import variants

SQUARE = Space.from_dict({name: [(at + 0.5) / 20 for at in range(20)] for name in "xy"})


@pytest.mark.parametrize(
    ("shares", "held", "count", "quotas"),
    [
        ([1.0, 1.0], [9, 9], 4, [2, 2]),
        ([3.0, 1.0], [9, 9], 4, [3, 1]),
        ([2.0, 1.0, 1.0], [9, 9, 9], 5, [3, 1, 1]),
        ([3.0, 1.0], [1, 9], 4, [1, 3]),
        ([-1.0, 1.0], [9, 9], 3, [0, 3]),
        ([-1.0, -1.0], [9, 9], 2, [1, 1]),
        ([0.0], [2], 5, [2]),
        ([1.0, 0.0], [1, 3], 4, [1, 3]),
    ],
)
def test_largest_remainder(
    shares: list[float], held: list[int], count: int, quotas: list[int]
) -> None:
    assert apportion(np.array(shares), np.array(held), count).tolist() == quotas


def test_scores_of_leaves() -> None:
    got = scores(np.array([2.0, 1.0]), np.array([0.2, 0.8]), np.array([5.0, 10.0]), (1, 0.5, 1))
    assert got == pytest.approx([1.0 + 0.125 - 0.5, 0.5 + 0.5 - 1.0])


@pytest.mark.parametrize("policy", sorted(POLICIES))
def test_a_policy_spends_its_budget_on_distinct_points(policy: str) -> None:
    runs = []
    for _ in range(2):
        profiler = DecisionTreeProfiler(SQUARE, budget=24, batch=5, policy=policy, model="lines")
        points = []
        while chosen := profiler.suggest():
            points += chosen
            for point in chosen:
                profiler.tell(point, -point["x"] * point["y"] + 3.0 * (point["x"] > 0.7))
        runs.append(points)
    assert runs[0] == runs[1]
    assert len(runs[0]) == 24
    assert len({(point["x"], point["y"]) for point in runs[0]}) == 24


def test_the_first_points_of_panic_are_corners() -> None:
    profiler = DecisionTreeProfiler(SQUARE, budget=8, batch=4, policy="panic")
    corners = {(x, y) for x in (0.025, 0.975) for y in (0.025, 0.975)}
    assert {(point["x"], point["y"]) for point in profiler.suggest()} == corners


RANGES = {
    "x": {"from": 0.0, "to": 1.0},
    "n": {"from": 1, "to": 10_000_001, "log": True},
    "codec": {"choices": ["gz", "xz"]},
    "size": [2, 4, 8],
}


def test_panic_runs_corners_and_middles_of_a_space_that_is_not_listed() -> None:
    profiler = DecisionTreeProfiler(
        Space.from_dict(RANGES, forbid=["x > 0.9 and size == 8"]), batch=16, policy="panic"
    )
    corners = profiler.suggest()
    ends = {"x": (0.0, 1.0), "n": (1, 10_000_001), "codec": ("gz", "xz"), "size": (2, 8)}
    exact = [all(point[name] in ends[name] for name in ends) for point in corners]
    # A quarter of them is forbidden: the nearest points of the pool stand for those.
    assert sum(exact) == 12
    assert all(map(profiler.space.contains, corners))
    free = DecisionTreeProfiler(Space.from_dict(RANGES), batch=16, policy="panic")
    for point in free.suggest():
        free.tell(point, point["x"] * np.log(point["n"]))
    middles = free.suggest(3)
    assert {point["x"] for point in middles} <= {0.0, 0.5, 1.0}
    assert {point["n"] for point in middles} <= {1, 3162, 10_000_001}
    assert any(point["x"] == 0.5 or point["n"] == 3162 for point in middles)


def test_a_middle_has_the_parameters_that_exist_there() -> None:
    space = Space.from_dict(
        {
            "x": {"from": 0.0, "to": 1.0},
            "n": [1, 2, 3],
            "level": {"from": 1, "to": 9, "when": "n == 2"},
        }
    )
    profiler = DecisionTreeProfiler(space, budget=40, batch=8, policy="panic", model="lines")
    levels = []
    while points := profiler.suggest():
        for point in points:
            profiler.tell(point, point["x"] * point["n"])
            levels.append(point.get("level"))
    assert 5 in levels


def test_panic_runs_no_point_twice_in_a_large_space_of_few_values() -> None:
    space = Space.from_dict({name: list(range(3)) for name in "abcdefghijklmn"})
    assert space.size == 3**14
    profiler = DecisionTreeProfiler(space, budget=90, batch=30, policy="panic", model="lines")
    seen = set()
    while points := profiler.suggest():
        for point in points:
            profiler.tell(point, sum(point.values()) + point["a"] * point["b"])
            seen.add(tuple(point.values()))
    assert len(seen) == 90


@pytest.mark.thorough
def test_the_tree_samples_where_the_function_is_hard() -> None:
    profiler = DecisionTreeProfiler(
        SQUARE, budget=80, batch=8, policy="dta", weights=(1.0, 0.0, 0.0), model="lines"
    )
    observed = []
    while points := profiler.suggest():
        for point in points:
            observed.append(point)
            bump = np.exp(-40 * ((point["x"] - 0.75) ** 2 + (point["y"] - 0.75) ** 2))
            profiler.tell(point, point["x"] + point["y"] + 5.0 * bump)
    inside = np.mean([point["x"] > 0.5 and point["y"] > 0.5 for point in observed])
    assert inside > 0.35


@pytest.mark.parametrize(
    "options",
    [{"rebuild": False}, {"split": "axis"}, {"criterion": "variance"}, {"draws": 1}],
)
def test_variants_of_the_tree(options: dict[str, object]) -> None:
    profiler = DecisionTreeProfiler(
        SQUARE,
        budget=30,
        batch=6,
        policy="dta",
        model="lines",
        **options,  # type: ignore[arg-type]
    )
    while points := profiler.suggest():
        for point in points:
            profiler.tell(point, abs(point["x"] - point["y"]))
        again = DecisionTreeProfiler.from_json(profiler.to_json())
        resumed = again.suggest()
        assert resumed == DecisionTreeProfiler.from_json(profiler.to_json()).suggest()
    assert profiler.report()["runs"] == 30


def _dta_runs(draws: int, seed: int) -> np.ndarray:
    profiler = DecisionTreeProfiler(
        SQUARE, budget=40, batch=5, policy="dta", model="lines", draws=draws, random_state=seed
    )
    runs = []
    while points := profiler.suggest():
        for point in points:
            runs.append((point["x"], point["y"]))
            profiler.tell(point, float(np.exp(-3.0 * point["x"]) + point["y"] ** 2))
    return np.array(runs)


@pytest.mark.thorough
@pytest.mark.parametrize("seeds", [3, pytest.param(8, marks=pytest.mark.thorough)])
def test_runs_of_the_tree_leave_no_part_empty(seeds: int) -> None:
    """The farthest any point of the space is from a run: less than with the paper's draws."""
    side = (np.arange(20) + 0.5) / 20
    space = np.stack(np.meshgrid(side, side), axis=-1).reshape(-1, 2)

    def emptiest(draws: int) -> float:
        return float(
            np.mean(
                [cKDTree(_dta_runs(draws, seed)).query(space)[0].max() for seed in range(seeds)]
            )
        )

    assert emptiest(draws=8) < 0.85 * emptiest(draws=1)


def test_a_profile_begun_with_uniform_draws_goes_on_with_them() -> None:
    before = DecisionTreeProfiler(SQUARE, budget=30, batch=5, policy="dta", model="lines", draws=1)
    for point in before.suggest():
        before.tell(point, point["x"])
    document = json.loads(before.to_json())
    del document["settings"]["draws"]
    payload = {name: document[name] for name in document if name not in ("format", "checksum")}
    again = DecisionTreeProfiler.from_json(json.dumps(KIND.seal(payload)))
    assert again.draws == 1
    assert again.suggest() == before.suggest()


@pytest.mark.thorough
def test_an_early_failure_does_not_close_a_choice() -> None:
    """Where a * b is large, runs fail; with either choice of c most others succeed."""
    rows = [(a, b, c) for a in range(1, 7) for b in (1, 2, 4, 8) for c in ("gz", "xz")]
    points = [dict(zip("abc", row, strict=True)) for row in rows]
    succeeded = []
    for seed in range(6):
        profiler = DecisionTreeProfiler(
            Space.from_table(points), budget=14, batch=1, model="lines", random_state=seed
        )
        profiler.tell({"a": 4, "b": 8, "c": "xz"}, None, error="out of memory")
        while suggested := profiler.suggest():
            for point in suggested:
                a, b, xz = float(point["a"]), float(point["b"]), point["c"] == "xz"
                fails = a * b > 20
                profiler.tell(point, None if fails else 2 * a + 10 / b + 5 * xz)
                succeeded.append(xz and not fails)
        risk = profiler.predict([{"a": 1, "b": 1, "c": "xz"}, {"a": 4, "b": 8, "c": "xz"}])
        assert risk.failure_probability[0] < risk.failure_probability[1] < 1.0
    assert np.mean(succeeded) > 0.2


def test_listed_values_are_scaled_as_they_lie_evenly() -> None:
    """Not by how many times the largest is the smallest, as scales of models are tried."""
    space = Space.from_dict(
        {
            "threads": [1, 2, 4, 8],
            "buffer_kib": [256, 512, 1024, 16384],
            "level": [2, 4, 6, 8],
            "share": [(at + 0.5) / 20 for at in range(20)],
            "limit": {"from": 1, "to": 64},
            "size": {"from": 1, "to": 64, "log": True},
        }
    )
    features = Features(space.dimensions, "even")
    assert features.names == [
        "log(threads)",
        "log(buffer_kib)",
        "level",
        "share",
        "limit",
        "log(size)",
    ]


def test_where_runs_fail_is_learned_on_the_scale_on_which_values_are_listed() -> None:
    """Powers of two: the runs of 16 that succeeded are three steps from those of 2 that failed, not
    one twentieth of the range."""
    space = Space.from_dict({"buffer_kib": [2**k for k in range(9)], "threads": [1, 2]})
    profiler = DecisionTreeProfiler(space, budget=40, model="lines")
    for buffer in (1, 2, 16, 64, 256):
        for threads in (1, 2):
            value = None if buffer <= 2 else 10.0 + 1.0 / buffer
            profiler.tell({"buffer_kib": buffer, "threads": threads}, value)
    points = [{"buffer_kib": buffer, "threads": 1} for buffer in (2, 4, 8, 16)]
    risk = profiler.predict(points).failure_probability
    assert risk.tolist() == sorted(risk, reverse=True)
    assert risk[0] > 0.7
    assert risk[-1] < 0.3


@pytest.mark.thorough
def test_runs_go_where_times_are_long() -> None:
    """Inputs double, and times with them: without the weights 0.40 of the runs are of the four
    longest of ten inputs."""
    inputs, shares = [2**k for k in range(10)], [(at + 0.5) / 12 for at in range(12)]
    space = Space.from_dict({"input": inputs, "share": shares})
    profiler = DecisionTreeProfiler(space, budget=36, batch=6, model="lines")
    long: list[bool] = []
    while points := profiler.suggest():
        for point in points:
            size, share = float(point["input"]), float(point["share"])
            long.append(size >= inputs[6])
            profiler.tell(point, size * (1.0 + 0.5 * np.sin(9.0 * share + np.log(size))))
    assert np.mean(long[6:]) > 0.46


@pytest.mark.thorough
def test_runs_go_where_times_are_long_where_only_a_forest_predicts() -> None:
    """Rough times that double with every other ``x``: without the weights 0.53 of the later runs
    are in the half where they are long, with them 0.68 (twelve seeds; 0.07 from one to another)."""
    space = Space.from_dict({name: list(range(20)) for name in "xy"})
    rough = np.exp(np.random.default_rng(5).normal(0.0, 0.8, (20, 20)))
    long: list[bool] = []
    for seed in range(8):
        profiler = DecisionTreeProfiler(space, budget=60, batch=5, random_state=seed)
        runs: list[int] = []
        while points := profiler.suggest():
            for point in points:
                x, y = int(point["x"]), int(point["y"])
                runs.append(x)
                profiler.tell(point, float(rough[x, y] * np.exp(0.35 * x)))
        long += [x >= 10 for x in runs[20:]]
    assert np.mean(long) > 0.6


def test_random_runs_are_drawn_by_the_roots_of_their_prices() -> None:
    rng = np.random.default_rng(0)
    prices = np.repeat([1.0, 100.0], 100)
    far = np.ones(200)
    drawn = [farthest_paid(far, prices, rng) for _ in range(3000)]
    assert np.mean(prices[drawn] > 1.0) == pytest.approx(1 / 11, abs=0.03)


def test_random_runs_that_are_paid_for_are_no_repeats_while_points_are_left() -> None:
    rng = np.random.default_rng(0)
    away = np.array([0.0, -1.0, 0.5, 0.0, -1.0])
    prices = np.array([1.0, 1.0, 1e6, 1.0, 1.0])
    assert {farthest_paid(away, prices, rng) for _ in range(20)} == {2}
    away[2] = -1.0
    assert {farthest_paid(away, prices, rng) for _ in range(40)} == {0, 3}
    prices[0] = 1e6
    assert {farthest_paid(away, prices, rng) for _ in range(40)} == {3}


def test_dear_points_are_run_where_the_budget_counts_runs() -> None:
    """Random times: chance decides, and by their prices hardly any of the dear would be run, though
    the budget is not spent sooner by those."""
    space = Space.from_dict({"n": [1, 10, 100], "k": list(range(1, 21))})
    values = np.random.default_rng(1).normal(0.0, 1.0, (3, 21))
    profiler = DecisionTreeProfiler(space, budget=40, batch=5, cost="n ** 2", model="lines")
    runs: list[tuple[int, int]] = []
    while points := profiler.suggest():
        for point in points:
            n, k = int(point["n"]), int(point["k"])
            runs.append((n, k))
            profiler.tell(point, float(values[len(str(n)) - 1, k]))
    assert len(set(runs)) >= 30
    assert sum(n == 100 for n, _ in runs) >= 7


def test_an_error_of_a_large_value_weighs_more_than_of_a_small_one() -> None:
    weights = importance(np.log([1.0, 10.0, 100.0]))
    assert weights.mean() == pytest.approx(1.0)
    assert weights[0] == pytest.approx(0.5, abs=0.01)
    assert weights.tolist() == sorted(weights)
    assert importance(np.log([1e-300, 1e300])).tolist() == pytest.approx([0.5, 1.5])


@pytest.mark.thorough
@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(seed, marks=pytest.mark.thorough) for seed in (1, 2))]
)
def test_suggestions_differ_where_every_point_is_likely_to_fail(seed: int) -> None:
    """Runs fail at random, half of them, so that no place is safe."""
    points = [{"x": x, "y": y} for x in range(8) for y in range(8)]
    outcomes = np.random.default_rng(0).uniform(size=len(points)) < 0.5
    profiler = DecisionTreeProfiler(
        Space.from_table(points), budget=64, batch=8, model="lines", random_state=seed
    )
    while suggested := profiler.suggest():
        for point in suggested:
            fails = outcomes[int(point["x"]) * 8 + int(point["y"])]
            profiler.tell(point, None if fails else 1.0 + point["x"])
        taken = {tuple(point.values()) for point in suggested}
        assert len(taken) == len(suggested)


@pytest.mark.thorough
def test_later_runs_may_fail_as_far_as_few_of_them_did() -> None:
    """Some of 20 runs failed; then none of 40 did, or 4 of them."""
    grid = [(at + 0.5) / 30 for at in range(30)]
    space = Space.from_dict({"x": grid, "y": grid})
    bold, shy = [], []
    for seed in range(4):
        drawn: list[Any] = space.decode(space.draw(400, np.random.default_rng(seed)))
        safe = [point for point in drawn[20:] if point["x"] + point["y"] < 0.9][:40]
        failing = [point for point in drawn[20:] if point["x"] + point["y"] > 1.25][:4]
        for later, risks in ((safe, bold), (failing + safe[4:], shy)):
            profiler = DecisionTreeProfiler(
                space, budget=200, batch=5, model="lines", random_state=seed
            )
            for point in drawn[:20] + later:
                load = point["x"] + point["y"]
                profiler.tell(point, None if load > 1.2 else float(np.exp(4.0 * load)))
            forecast = profiler.predict(profiler.suggest())
            risks.append(float(forecast.failure_probability.max()))
    assert min(bold) > 0.2
    assert max(shy) < 0.1


@pytest.mark.parametrize("policy", variants(("dta", "uni", "auto"), 2))
def test_runs_that_are_all_alike_are_spread(policy: str) -> None:
    """A cliff may lie in what was not run yet."""
    profiler = DecisionTreeProfiler(SQUARE, budget=40, batch=5, policy=policy, model="lines")
    runs = []
    while points := profiler.suggest():
        for point in points:
            runs.append((point["x"], point["y"]))
            profiler.tell(point, 5.0)
    by_quarter = np.unique(np.array(runs) > 0.5, axis=0, return_counts=True)[1]
    assert len(by_quarter) == 4
    assert by_quarter.min() >= 3


@pytest.mark.parametrize("policy", POLICIES)
def test_nothing_is_suggested_once_everything_was_run(policy: str) -> None:
    profiler = DecisionTreeProfiler(
        Space.from_dict({"a": [1, 2, 3]}), budget=10, batch=2, policy=policy
    )
    values = []
    while points := profiler.suggest():
        for point in points:
            profiler.tell(point, float(point["a"]))
            values.append(point["a"])
    assert sorted(values) == [1, 2, 3]
    assert profiler.suggest() == []
