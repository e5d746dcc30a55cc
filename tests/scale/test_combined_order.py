"""The order of predictors over measured runs, and whether it is chance."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from benchmarks.scale.combined_order import judged, noise_floor, order, sign_flip, with_own_idle


def row(visit: int, seconds: float, load: str | None = "stream", **predicted: float) -> Any:
    return {
        "program": "p",
        "machines": 2,
        "scale": 0.5,
        "load": load,
        "visit": visit,
        "seconds": seconds,
        "predicted": {"combination": 1.0, "scale_only": 1.0} | predicted,
        "intervals": {"combination": (0.5, 1.5)},
    }


def rows_of(gain: float, visits: int = 20, seed: int = 1) -> list[Any]:
    """Visits with a common error each; ``a`` is nearer than ``b`` by ``gain`` on average."""
    random = np.random.default_rng(seed)
    rows = []
    for visit in range(visits):
        common = 0.05 * random.standard_normal()
        for _ in range(3):
            a = 1.2 + common + 0.02 * random.standard_normal()
            rows.append(row(visit, 1.0, a=a, b=1.2 + gain + 0.05 * random.standard_normal()))
    return rows


def test_an_order_that_is_there_is_beyond_chance() -> None:
    summary = order(rows_of(0.1), "a", "b")
    assert summary["visits"] == 20
    assert summary["difference"] == pytest.approx(-10.0, abs=3.0)
    assert summary["interval"][0] < summary["difference"] < summary["interval"][1] < 0.0
    assert summary["ratio"] < 1.0
    assert summary["p"] < 0.01
    assert summary["beyond_chance"]


def test_chance_is_called_so_as_often_as_it_says() -> None:
    beyond = [order(rows_of(0.0, 12, seed), "a", "b")["beyond_chance"] for seed in range(60)]
    assert np.mean(beyond) < 0.15


def test_rows_of_one_visit_are_not_repeats() -> None:
    """Three visits, however many runs they have, have eight patterns of signs."""
    rows = [row(visit, 1.0, a=1.1, b=1.5) for visit in range(3) for _ in range(50)]
    assert order(rows, "a", "b")["p"] == pytest.approx(2 / 8)
    assert order(rows[:50], "a", "b")["p"] is None


def test_few_and_many_visits_have_the_same_test() -> None:
    random = np.random.default_rng(0)
    few = np.array([1.0, 2.0, 3.0, -0.5])
    assert sign_flip(few, random) == pytest.approx(4 / 16)
    assert sign_flip(np.full(30, 1.0), random) < 1e-3


def test_what_a_configuration_took_idle_leaves_the_run_itself_out() -> None:
    rows = [row(0, 1.0, None), row(1, 3.0, None), row(2, 9.0)]
    own_idle = [entry["predicted"]["own_idle"] for entry in with_own_idle(rows)]
    assert own_idle == [3.0, 1.0, 2.0]


def test_judgement() -> None:
    rows = [
        row(visit, seconds, load, combination=predicted)
        for visit, (seconds, load, predicted) in enumerate(
            [(1.0, None, 1.0), (1.1, None, 1.0), (2.0, "stream", 1.8), (2.2, "stream", 1.8)]
        )
    ]
    judgement = judged(rows, [("combination", "scale_only")])
    assert judgement["loaded"]["error_pct"]["combination"] == pytest.approx(
        100 * (0.1 + 0.4 / 2.2) / 2
    )
    assert judgement["loaded"]["error_pct"]["scale_only"] > 50.0
    assert judgement["loaded"]["coverage"]["combination"] == 0.0
    (slowdown,) = judgement["slowdowns"]
    assert slowdown["measured"] == pytest.approx(2.0)
    assert slowdown["predicted"]["combination"] == pytest.approx(1.8)
    assert noise_floor(rows) == pytest.approx(judgement["noise_floor_pct"])
    assert judged([], [("a", "b")])["all"]["error_pct"] == {}
