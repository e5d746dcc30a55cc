"""Which nodes are refused, and the priorities of the others."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kongming_extender.pods import Demand, UnknownPolicy
from kongming_extender.policy import (
    Resident,
    nodes_to_check,
    over_limit,
    priorities,
    resident_over_limit,
    single_best,
    unknown_nodes,
)
from kongming_scheduling.async_client import ResidentSlowdown
from kongming_scheduling.ranking_cache import NodeScore

SCORES = st.floats(-0.5, 20.0)
RANKED = st.dictionaries(st.text("abcdef", min_size=1, max_size=4), SCORES, min_size=1)


def nodes(scores: dict[str, float]) -> dict[str, NodeScore]:
    return {name: NodeScore(name, score, math.exp(score)) for name, score in scores.items()}


@given(RANKED, st.floats(1.05, 10.0), st.sets(st.text("uvw", min_size=1, max_size=3)))
def test_priorities_are_integers_and_fall_with_the_predicted_slowdown(
    scores: dict[str, float], steep: float, unknown: set[str]
) -> None:
    names = sorted({*scores, *unknown})
    by_name = dict(zip(names, priorities(names, nodes(scores), steep), strict=True))
    assert all(type(priority) is int and 0 <= priority <= 10 for priority in by_name.values())
    ordered = sorted(scores, key=lambda name: scores[name])
    assert by_name[ordered[0]] == 10
    known = [by_name[name] for name in ordered]
    assert known == sorted(known, reverse=True)
    assert all(by_name[name] == known[len(known) // 2] for name in unknown)


@given(RANKED, st.floats(-5.0, 5.0))
def test_what_slows_all_nodes_alike_changes_no_priority(
    scores: dict[str, float], more: float
) -> None:
    names = list(scores)
    exact = {name: round(score * 8) / 8 for name, score in scores.items()}
    shifted = {name: score + round(more * 8) / 8 for name, score in exact.items()}
    assert priorities(names, nodes(exact), 2.0) == priorities(names, nodes(shifted), 2.0)


def test_a_node_twice_as_bad_has_0_and_nodes_much_alike_share_a_priority() -> None:
    result = priorities(
        ["best", "alike", "worse", "twice"],
        nodes(
            {"best": 0.1, "alike": 0.12, "worse": 0.1 + math.log(1.4), "twice": 0.1 + math.log(2)}
        ),
        2.0,
    )
    assert result == [10, 10, 5, 0]


@given(RANKED, st.floats(1.0, 30.0))
def test_a_limit_refuses_what_is_above_it_and_nothing_else(
    scores: dict[str, float], limit: float
) -> None:
    table = nodes(scores)
    names = [*table, "unknown-node"]
    failed = over_limit(names, table, limit)
    assert set(failed) == {name for name, node in table.items() if node.slowdown > limit + 1e-6} | {
        name for name in failed if table[name].slowdown > limit
    }
    assert over_limit(names, table, 0.0) == {}


def test_a_resident_beyond_its_limit_is_named_with_its_slowdown() -> None:
    web = Resident("u1", "web", "default/web-1", 1.3)
    slow, within_limit = ResidentSlowdown(1.41), ResidentSlowdown(1.3)
    assert resident_over_limit({"u1": slow}, {"u1": web}) == (web, slow)
    assert resident_over_limit({"u1": within_limit, "other": slow}, {"u1": web}) is None
    assert resident_over_limit({}, {"u1": web}) is None


def test_at_least_so_much_does_not_keep_a_limit() -> None:
    """Of the pod itself that is unknown, which its limit does not allow; of a pod that is there, no
    sign that it is kept within its own."""
    known = NodeScore("known", 0.1, 1.1, worst_resident=1.2)
    table = {
        "known": known,
        "open": replace(known, at_least=True),
        "beyond": replace(known, slowdown=1.6, at_least=True),
        "harmed": replace(known, worst_at_least=True),
    }
    assert over_limit([*table], table, 1.5) == {"open": "unknown", "beyond": "limit"}
    assert over_limit([*table], table, 0.0) == {}
    web = Resident("u1", "web", "default/web-1", 1.3)
    residents = {name: {"u1": web} for name in table}
    assert nodes_to_check([*table], table, residents) == ["harmed"]
    least = ResidentSlowdown(1.2, at_least=True)
    assert resident_over_limit({"u1": least}, {"u1": web}) == (web, least)


@pytest.mark.parametrize(
    ("unknown", "limit", "judged", "known", "refused"),
    [
        # By default nothing but a limit that can be judged keeps a pod from unknown nodes ...
        (None, 0.0, True, {"a": "passes"}, False),
        (None, 1.2, False, {"a": "passes"}, False),
        # ... and it does so as long as any node is known: of these candidates, or of others.
        (None, 1.2, True, {"a": "passes"}, True),
        (None, 1.2, True, {"a": "refused"}, True),
        (None, 1.2, True, {"elsewhere": "passes"}, True),
        (None, 1.2, True, {}, False),
        ("allow", 1.2, True, {"a": "refused"}, False),
        # Without a limit, as long as a candidate that is known takes it.
        ("last", 0.0, True, {"a": "passes"}, True),
        ("last", 0.0, True, {"a": "refused"}, False),
        ("last", 0.0, True, {"elsewhere": "passes"}, False),
        ("last", 1.2, False, {"elsewhere": "passes"}, False),
        ("refuse", 0.0, True, {}, True),
        ("refuse", 1.2, False, {}, True),
    ],
)
def test_when_unknown_nodes_are_refused(
    unknown: UnknownPolicy | None,
    limit: float,
    judged: bool,
    known: dict[str, str],
    refused: bool,
) -> None:
    demand = Demand(app="etl", limit=limit, unknown=unknown)
    names = ["unknown", *(name for name in known if name != "elsewhere")]
    over = {name for name, state in known.items() if state == "refused"}
    reasons = unknown_nodes(names, nodes(dict.fromkeys(known, 0.5)), demand, over, judged=judged)
    assert reasons == ({"unknown": "unknown"} if refused else {})


def test_only_nodes_where_a_limit_may_be_exceeded_are_checked() -> None:
    table = {
        "calm": NodeScore("calm", 0.1, 1.1, worst_resident=1.2),
        "hot": NodeScore("hot", 0.1, 1.1, worst_resident=1.5),
        "free": NodeScore("free", 0.1, 1.1, worst_resident=9.0),
    }
    strict, easy = Resident("u", "web", "w", 1.3), Resident("v", "db", "d", 2.0)
    residents = {"calm": {"u": strict}, "hot": {"u": strict, "v": easy}, "gone": {"u": strict}}
    assert nodes_to_check(["calm", "hot", "free", "gone"], table, residents) == ["hot"]


@pytest.mark.parametrize(
    ("priorities", "best"),
    [([], None), ([0], "a"), ([3, 10, 4], "b"), ([10, 4, 10], None), ([0, 0], None)],
)
def test_a_best_node_has_no_equal(priorities: list[int], best: str | None) -> None:
    assert single_best("abc"[: len(priorities)], priorities) == best
