"""Which node is meant by a name, and which campaigns of a node were asked for."""

from __future__ import annotations

import pytest
from kongming_server.nodes.registry import MOST_CAMPAIGNS, Agent, Agents

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


def test_of_each_application_the_newest_campaign_is_remembered() -> None:
    apps = tuple(f"app-{number}" for number in range(2 * MOST_CAMPAIGNS))
    agent = Agent(builders.node(), allowed_apps=apps)
    for app in apps:
        agent.want(app, "operator")
    waiting = {app: agent.campaign_of(app) for app in apps}
    assert all(agent.was_asked(campaign, app) for app, campaign in waiting.items())
    # They take days, and meanwhile the last one is asked for again and again.
    before = ""
    for _ in range(2 * MOST_CAMPAIGNS):
        before = agent.campaign_of(apps[-1])
        agent.wanted_profiles = ()
        agent.want(apps[-1], "server")
    restored = Agent(builders.node())
    restored.restore(agent.to_document())
    assert all(restored.was_asked(waiting[app], app) for app in apps[:-1])
    assert restored.was_asked(agent.campaign_of(apps[-1]), apps[-1])
    # Its runs may still be on their way.
    assert restored.was_asked(before, apps[-1])
    # What was replaced before is forgotten, and so is what is not allowed any more.
    assert len(restored.campaigns) == len(apps) + 1
    restored.allowed_apps, restored.wanted_profiles = ("new",), ()
    restored.want("new", "operator")
    assert len(restored.campaigns) == MOST_CAMPAIGNS
    assert restored.campaign_of("new")
