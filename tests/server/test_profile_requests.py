"""Requests to profile reach the agent, whichever answer is lost on the way."""

from __future__ import annotations

import pytest

from kongming.rpc.v1 import fleet_pb2
from tests.server.conftest import StartServer
from tests.server.fleet import FakeAgent


def ask(agent: FakeAgent, *apps: str) -> None:
    agent.fleet.RequestProfile(fleet_pb2.RequestProfileRequest(node="node-1", apps=apps))


def asked(agent: FakeAgent) -> list[str]:
    return list(agent.heartbeat().profile_apps)


@pytest.mark.parametrize("restarted", [False, True])
def test_it_is_asked_for_until_the_agent_speaks_again_over_the_same_connection(
    start_server: StartServer, restarted: bool
) -> None:
    server = start_server()
    first = FakeAgent(server.channel())
    first.register(allowed_apps=["sort", "scan"])
    ask(first, "sort")
    # An agent that dies before it has kept the answer comes back over another connection.
    assert asked(first) == ["sort"]
    if restarted:
        server.restart()
    second = FakeAgent(server.channel())
    assert asked(second) == ["sort"]
    ask(second, "scan")
    # That it has come is known of what the last answer held, and of nothing else.
    assert asked(second) == ["scan"]
    assert asked(second) == []
    assert asked(FakeAgent(server.channel())) == []
    # It may be asked for anew.
    ask(second, "sort", "sort")
    assert asked(second) == ["sort"]
    assert asked(second) == []
