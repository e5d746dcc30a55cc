"""Which nodes a ranking left out, and why, in words."""

from __future__ import annotations

from typing import get_args

import pytest

from kongming.cli.predict.left_out import REASONS, left_out
from kongming.engine.ranking.order import REASONS as KNOWN
from kongming.records.answers import NodeReport, NodeState, Ranking
from tests.builders import node


def report(name: str, state: NodeState = "ready", slowdown: float | None = 1.5) -> NodeReport:
    return NodeReport(
        node(id=name, name=name), state, last_fingerprint_at=1.0, general_slowdown=slowdown
    )


def ranking(**refused: int) -> Ranking:
    return Ranking(nodes=(), candidates=9, refused=refused, basis="model")


def test_every_reason_has_its_words() -> None:
    assert set(REASONS) == set(KNOWN) - {""}
    assert {"silent", "suspect"} <= set(REASONS) & set(get_args(NodeState))


@pytest.mark.parametrize(
    ("refused", "nodes", "message"),
    [
        ({"unpredictable": 1}, [report("a", slowdown=None)], "1 node left out (a): no idle ref"),
        ({"unpredictable": 1}, [report("a")], "1 node left out (a): no compatible model"),
        ({"silent": 1, "memory": 1}, [report("a", "silent"), report("b")], "(a): its agent"),
        ({"stale": 5}, [report(name) for name in "abcde"], "5 nodes left out (a, b, c and 2 more)"),
        # More nodes are absent than were left out: which they are cannot be known.
        ({"memory": 1}, [report("a"), report("b")], "1 node left out: it has too little"),
    ],
)
def test_nodes_are_named_where_it_is_certain(
    refused: dict[str, int], nodes: list[NodeReport], message: str
) -> None:
    assert message in "\n".join(left_out(ranking(**refused), nodes))
