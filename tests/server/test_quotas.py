"""What may be sent with one agent's credentials is bounded, and counted for them alone."""

from __future__ import annotations

import pytest
from kongming_server.configuration.limits import Quotas as Settings
from kongming_server.nodes.quotas import Quotas

from kongming.records.errors import InputError, OverloadedError


def test_names_are_counted_for_who_brought_them() -> None:
    quotas = Quotas(Settings(names=2), known=lambda name: name == "sort")
    for name in ("a", "b", "a", "sort"):
        quotas.name_application("token t", name)
    with pytest.raises(InputError, match="too many applications"):
        quotas.name_application("token t", "c")
    quotas.name_application("token u", "c")
    # Suite versions are counted separately, and callers without credentials have no quota.
    quotas.name_suite("token t", "1-a")
    for number in range(10):
        quotas.name_suite("", f"1-{number}")


def test_bytes_of_a_node_come_back_over_a_day() -> None:
    size = 1 << 20
    quotas = Quotas(Settings(node_bytes=4 * size))
    for _ in range(4):
        quotas.take_bytes("node-1", size, 0.0)
    with pytest.raises(OverloadedError, match="node_bytes"):
        quotas.take_bytes("node-1", size, 0.0)
    quotas.take_bytes("node-2", size, 0.0)
    quotas.take_bytes("node-1", size, 86_400.0 / 4 + 1.0)


def test_nodes_and_assignments_have_an_end() -> None:
    quotas = Quotas(Settings(nodes=2, named_nodes=3, assignments=3))
    quotas.check_nodes(1, named=False)
    quotas.check_nodes(2, named=True)
    quotas.check_assignments(2)
    with pytest.raises(OverloadedError, match="2 nodes"):
        quotas.check_nodes(2, named=False)
    with pytest.raises(OverloadedError, match="3 nodes"):
        quotas.check_nodes(3, named=True)
    with pytest.raises(OverloadedError):
        quotas.check_assignments(3)


def test_assignments_that_ended_make_room_for_others_slowly() -> None:
    quotas = Quotas(Settings(assignments=3))
    for _ in range(3):
        quotas.take_assignment("node-1", 0.0)
    with pytest.raises(OverloadedError, match="assignments"):
        quotas.take_assignment("node-1", 0.0)
    quotas.take_assignment("node-2", 0.0)
    quotas.take_assignment("node-1", 86_400.0 / 300 + 1.0)
