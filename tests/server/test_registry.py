"""Which node is meant by a name."""

from __future__ import annotations

import pytest
from kongming_server.nodes.registry import Agents

from kongming.records.errors import InputError, UnknownNameError
from tests import builders


def test_of_several_nodes_of_a_name_the_only_one_that_is_not_silent_is_meant() -> None:
    agents = Agents()
    former, present = (agents.put(builders.node(id=id_, name="n1")) for id_ in ("a", "b"))
    former.registered = present.registered = True
    with pytest.raises(InputError, match="several nodes"):
        agents.named("n1")
    assert agents.id_of("n1") == "n1"
    # It was installed anew: its former id is heard of no more, in quarantine or not.
    former.silent, former.suspect = True, "0 cycles"
    assert agents.named("n1") is present
    assert agents.id_of("n1") == "b"
    assert agents.named("a") is former
    assert agents.id_of("elsewhere") == "elsewhere"
    present.silent = True
    with pytest.raises(InputError, match="several nodes"):
        agents.named("n1")


def test_names_that_a_node_had_are_forgotten() -> None:
    agents = Agents()
    for number in range(3):
        agents.put(builders.node(id="N", name=f"n{number}.example"))
    # One name by two aliases: the name and the id differ in their case alone.
    agents.put(builders.node(id="N", name="n"))
    assert [agent.facts.id for agent in agents.alike("n")] == ["N"]
    agents.put(builders.node(id="N", name="last"))
    assert agents.alike("n0", "n2.example") == []
    with pytest.raises(UnknownNameError, match=r"Known: last\."):
        agents.named("n0.example")
    assert (len(agents._by_name), len(agents._by_alias)) == (1, 2)
