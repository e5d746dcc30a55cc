"""Which node a task gets: decisions alone, without a server."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace

import pytest

from kongming.integrations.placing import Member, OwnTasks, choose, resource_name, targets
from kongming.records.answers import NodeReport, RankedNode
from kongming.records.prediction import Interval
from tests import builders


def ranked(name: str, slowdown: float, *, tied: bool = False, resident: float = 1.0) -> RankedNode:
    return RankedNode(
        node_id=name,
        name=name,
        domain=0,
        score=math.log(slowdown),
        slowdown=Interval(slowdown, slowdown, slowdown),
        worst_resident_slowdown=resident,
        tied_with_first=tied,
    )


RANKED = (ranked("fast", 1.0, tied=True), ranked("slow", 2.5))


def placed(tasks: int, slots: dict[str, int], **limits: float) -> list[str]:
    """Where so many tasks go, none of which ends."""
    assigned: Counter[str] = Counter()
    for _ in range(tasks):
        node = choose(RANKED, slots, assigned, **limits)
        assert node is not None
        assigned[node.node_id] += 1
    return [*assigned.elements()]


def test_a_task_waits_for_a_fast_node_until_a_slow_one_would_end_it_first() -> None:
    # Two rounds on the fast node end before one on the slow one, three do not.
    assert placed(3, {"fast": 1, "slow": 1}) == ["fast", "fast", "slow"]
    assert Counter(placed(8, {"fast": 3, "slow": 2})) == {"fast": 6, "slow": 2}


def test_a_task_that_waits_never_runs_next_to_the_one_that_it_waits_for() -> None:
    """The server's score of a node has our own task in it, which will have ended by then."""
    own, assigned = OwnTasks(), Counter[str]()
    slots = {"calm": 1, "slow": 1}
    for _ in range(11):
        # A quarter slower next to a task, whosever it is.
        ranking = [
            replace(
                ranked(name, slowdown * (1.25 if assigned[name] else 1.0)),
                residents=min(1, assigned[name]),
            )
            for name, slowdown in (("calm", 1.0), ("slow", 11.5))
        ]
        own.learn(ranking, assigned, 0.0)
        node = choose(ranking, slots, assigned, own=own.scores)
        assert node is not None
        assigned[node.node_id] += 1
    assert assigned == {"calm": 11}
    # In another slot it does run next to it; and what came meanwhile is not ours.
    beside = replace(ranked("calm", 1.25), residents=1)
    free = choose(
        [beside, ranked("slow", 1.1)], {"calm": 2, "slow": 1}, {"calm": 1}, own=own.scores
    )
    assert free is not None
    assert free.node_id == "slow"
    other = OwnTasks()
    other.learn([ranked("calm", 1.0)], {}, 0.0)
    other.learn([replace(beside, residents=2)], {"calm": 1}, 0.0)
    assert other.scores == {}
    own.learn([ranked("calm", 1.0)], {}, 0.0)
    assert "calm" not in own.scores


def test_what_slowed_a_node_long_after_is_not_taken_for_the_task_on_it() -> None:
    """A neighbour that nobody reserved came while a long task ran: waiting is slow too."""
    own, slots, assigned = OwnTasks(), {"busy": 1, "free": 1}, {"busy": 1}
    own.learn([ranked("busy", 1.0), ranked("free", 3.4)], {}, 0.0)
    ranking = [replace(ranked("busy", 3.3), residents=1), ranked("free", 3.4)]
    own.learn(ranking, assigned, 3600.0)
    node = choose(ranking, slots, assigned, own=own.scores)
    assert node is not None
    assert node.node_id == "free"


def test_nodes_beyond_a_limit_are_left_out_as_long_as_others_are_there() -> None:
    slots = {"fast": 1, "slow": 1}
    assert placed(5, slots, limit=1.3) == ["fast"] * 5
    assert placed(1, {"slow": 1}, limit=1.3) == ["slow"]
    harm = (ranked("fast", 1.0, resident=1.9), ranked("slow", 2.5))
    best = choose(harm, slots, {}, resident_limit=1.5)
    assert best is not None
    assert best.node_id == "slow"
    assert choose(RANKED, {"unknown": 4}, {}) is None
    assert choose((), slots, {}) is None


def test_at_least_so_much_does_not_keep_a_limit() -> None:
    fast, slow = RANKED
    slots = {"fast": 1, "slow": 1}
    open_ = replace(fast, slowdown=replace(fast.slowdown, at_least=True))
    harmful = replace(fast, worst_resident_at_least=True)
    for first, limits in ((open_, {"limit": 3.0}), (harmful, {"resident_limit": 3.0})):
        best = choose((first, slow), slots, {}, **limits)
        assert best is not None
        assert best.node_id == "slow"
        assert choose((first, slow), slots, {}) is first
        # As long as others are there.
        assert choose((first,), slots, {}, **limits) is first


def test_near_ties_keep_the_order_in_which_the_server_spread_them() -> None:
    tied = (ranked("b", 1.02, tied=True), ranked("a", 1.0, tied=True), ranked("c", 1.2))
    node = choose(tied, dict.fromkeys("abc", 1), {})
    assert node is not None
    assert node.node_id == "b"


def report(name: str, *, id_: str = "", state: str = "ready") -> NodeReport:
    return NodeReport(facts=builders.node(id=id_ or f"id-{name}", name=name), state=state)  # type: ignore[arg-type]


def test_members_are_nodes_by_name_by_its_first_part_or_as_the_user_says() -> None:
    reports = (
        report("n1.cluster"),
        report("n2"),
        report("n3", id_="old", state="silent"),
        report("n3", id_="new"),
        report("twice", id_="a"),
        report("twice", id_="b"),
    )
    members = [
        Member("w1", ("n1",), 2),
        Member("w2", ("worker-2", "n2.example"), 1),
        Member("w3", ("n3",), 1),
        Member("w4", ("n3",), 3),
        Member("w5", ("twice",), 1),
        Member("w6", ("n2",), 0),
        Member("w7", ("nobody",), 1),
    ]
    by_node = targets(members, reports)
    assert {node: [m.id for m in target.members] for node, target in by_node.items()} == {
        "id-n1.cluster": ["w1"],
        "id-n2": ["w2"],
        "new": ["w3", "w4"],
    }
    assert by_node["new"].slots == 4
    # What is not in the user's mapping keeps its own name.
    mapped = targets(members, reports, {"nobody": "n1.cluster", "w3": "b"})
    assert [m.id for m in mapped["id-n1.cluster"].members] == ["w1", "w7"]
    assert [m.id for m in mapped["b"].members] == ["w3"]
    by_function = targets(members[:1], reports, lambda name: "n2" if name == "w1" else None)
    assert set(by_function) == {"id-n2"}


@pytest.mark.parametrize(
    ("names", "member"),
    [(("10.0.0.1",), "10.0.0.2"), (("n1", "n1.a"), "n1.b"), (("n1.a", "n1"), "n1.b")],
)
def test_a_first_part_that_may_be_of_several_names_no_node(
    names: tuple[str, ...], member: str
) -> None:
    reports = [report(name) for name in names]
    assert targets([Member("w", (member,), 1)], reports) == {}
    assert set(targets([Member("w", (names[0],), 1)], reports)) == {f"id-{names[0]}"}


def test_a_resource_names_the_node() -> None:
    assert resource_name(["CPU", "kongming:n1.cluster", "node:10.0.0.1"]) == "n1.cluster"
    assert resource_name(["CPU"]) is None
