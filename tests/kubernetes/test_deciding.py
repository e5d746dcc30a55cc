"""Which nodes are refused and what the others score."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kongming_extender.deciding import (
    Resident,
    Row,
    harmed,
    in_doubt,
    outstanding,
    over_limit,
    points,
)

BADNESS = st.floats(-0.5, 20.0)
RANKED = st.dictionaries(st.text("abcdef", min_size=1, max_size=4), BADNESS, min_size=1)


def rows(badness: dict[str, float]) -> dict[str, Row]:
    return {name: Row(name, one, math.exp(one)) for name, one in badness.items()}


@given(RANKED, st.floats(1.05, 10.0), st.sets(st.text("uvw", min_size=1, max_size=3)))
def test_scores_are_whole_and_fall_with_the_predicted_slowdown(
    badness: dict[str, float], steep: float, unknown: set[str]
) -> None:
    names = sorted({*badness, *unknown})
    made = dict(zip(names, points(names, rows(badness), steep), strict=True))
    assert all(type(score) is int and 0 <= score <= 10 for score in made.values())
    ordered = sorted(badness, key=lambda name: badness[name])
    assert made[ordered[0]] == 10
    scores = [made[name] for name in ordered]
    assert scores == sorted(scores, reverse=True)
    assert all(made[name] == scores[len(scores) // 2] for name in unknown)


@given(RANKED, st.floats(-5.0, 5.0))
def test_what_slows_all_nodes_alike_changes_no_score(
    badness: dict[str, float], more: float
) -> None:
    names = list(badness)
    exact = {name: round(one * 8) / 8 for name, one in badness.items()}
    shifted = {name: one + round(more * 8) / 8 for name, one in exact.items()}
    assert points(names, rows(exact), 2.0) == points(names, rows(shifted), 2.0)


def test_a_node_twice_as_bad_has_nothing_and_nodes_much_alike_share_a_score() -> None:
    made = points(
        ["best", "alike", "worse", "twice"],
        rows(
            {"best": 0.1, "alike": 0.12, "worse": 0.1 + math.log(1.4), "twice": 0.1 + math.log(2)}
        ),
        2.0,
    )
    assert made == [10, 10, 5, 0]


@given(RANKED, st.floats(1.0, 30.0))
def test_a_limit_refuses_what_is_above_it_and_nothing_else(
    badness: dict[str, float], limit: float
) -> None:
    table = rows(badness)
    names = [*table, "unknown-node"]
    failed = over_limit(names, table, "etl", limit)
    assert set(failed) == {name for name, row in table.items() if row.slowdown > limit + 1e-6} | {
        name for name in failed if table[name].slowdown > limit
    }
    assert over_limit(names, table, "etl", 0.0) == {}


def test_reasons_say_what_was_found_and_what_is_allowed() -> None:
    table = {"a": Row("a", 0.5, 1.62), "b": Row("b", 0.5, 1.7, extrapolating=True)}
    failed = over_limit(["a", "b"], table, "etl", 1.2)
    assert failed["a"] == (
        "kongming: etl would take 1.62 times as long as on an idle node; its limit is 1.2"
    )
    assert "outside of what it was profiled under" in failed["b"]
    theirs = {"u1": Resident("u1", "web", "default/web-1", 1.3)}
    assert harmed({"u1": 1.41}, theirs, "etl") == (
        "kongming: beside etl, default/web-1 (web) would take 1.41 times as long as on an idle "
        "node; its limit is 1.3"
    )
    assert harmed({"u1": 1.3, "other": 9.0}, theirs, "etl") is None
    assert harmed({}, theirs, "etl") is None


def test_only_nodes_where_a_limit_may_be_broken_are_looked_at() -> None:
    table = {
        "calm": Row("calm", 0.1, 1.1, worst_resident=1.2),
        "hot": Row("hot", 0.1, 1.1, worst_resident=1.5),
        "free": Row("free", 0.1, 1.1, worst_resident=9.0),
    }
    strict, easy = Resident("u", "web", "w", 1.3), Resident("v", "db", "d", 2.0)
    residents = {"calm": {"u": strict}, "hot": {"u": strict, "v": easy}, "gone": {"u": strict}}
    assert in_doubt(["calm", "hot", "free", "gone"], table, residents) == ["hot"]


@pytest.mark.parametrize(
    ("scores", "best"),
    [([], None), ([0], "a"), ([3, 10, 4], "b"), ([10, 4, 10], None), ([0, 0], None)],
)
def test_a_node_stands_out_only_alone(scores: list[int], best: str | None) -> None:
    assert outstanding("abc"[: len(scores)], scores) == best
