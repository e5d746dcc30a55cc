"""Which node a task gets: decisions alone, without a server."""

from __future__ import annotations

import math
from collections import Counter

from kongming.integrations.placing import Member, choose, resource_name, targets
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
    found = targets(members, reports)
    assert {node: [m.id for m in target.members] for node, target in found.items()} == {
        "id-n1.cluster": ["w1"],
        "id-n2": ["w2"],
        "new": ["w3", "w4"],
    }
    assert found["new"].slots == 4
    # What is not in the user's mapping keeps its own name.
    said = targets(members, reports, {"nobody": "n1.cluster", "w3": "b"})
    assert [m.id for m in said["id-n1.cluster"].members] == ["w1", "w7"]
    assert [m.id for m in said["b"].members] == ["w3"]
    by_function = targets(members[:1], reports, lambda name: "n2" if name == "w1" else None)
    assert set(by_function) == {"id-n2"}


def test_a_resource_names_the_node() -> None:
    assert resource_name(["CPU", "kongming:n1.cluster", "node:10.0.0.1"]) == "n1.cluster"
    assert resource_name(["CPU"]) is None
