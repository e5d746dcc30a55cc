"""docs/other-schedulers.md names every state of a node, and which of them have numbers."""

from __future__ import annotations

import re
from typing import get_args

from kongming.records.answers import NodeReport, NodeState
from kongming.sensors.node_figures import figures
from tests import builders
from tests.docs import tables

PAGE = (tables.ROOT / "docs/other-schedulers.md").read_text(encoding="utf-8")


def test_the_states_of_a_node_and_whether_their_numbers_are_given() -> None:
    section = PAGE.split("## States of a node")[1].split("\n## ")[0]
    documented = dict(
        re.findall(r"^\| `(\w+)` \|.*\| (reported|left out) \|$", section, re.MULTILINE)
    )
    assert documented == {
        state: "reported" if _has_numbers(state) else "left out" for state in get_args(NodeState)
    }


def _has_numbers(state: NodeState) -> bool:
    """Whether numbers of a fresh fingerprint are given for a node in this state."""
    report = NodeReport(builders.node(), state, last_fingerprint_at=99.0, general_slowdown=2.0)
    return figures(report, {}, 100.0, 60.0).slowdown is not None
