"""Requests to profile reach the agent, whichever answer is lost on the way."""

from __future__ import annotations

import json

import pytest

from kongming.cli.main import run
from kongming.rpc.v1 import fleet_pb2
from tests.server.conftest import StartServer
from tests.server.fleet import FakeAgent
from tests.server.process import ServerProcess


def ask(agent: FakeAgent, *apps: str) -> None:
    agent.fleet.RequestProfile(fleet_pb2.RequestProfileRequest(node="node-1", apps=apps))


def requested_apps(agent: FakeAgent) -> list[str]:
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
    assert requested_apps(first) == ["sort"]
    if restarted:
        server.restart()
    second = FakeAgent(server.channel())
    assert requested_apps(second) == ["sort"]
    ask(second, "scan")
    # Only what the last answer held is known to have arrived.
    assert requested_apps(second) == ["scan"]
    assert requested_apps(second) == []
    assert requested_apps(FakeAgent(server.channel())) == []
    # It may be requested again.
    ask(second, "sort", "sort")
    assert requested_apps(second) == ["sort"]
    assert requested_apps(second) == []


def test_the_command_asks_the_agent_of_a_node(
    server: ServerProcess, capsys: pytest.CaptureFixture[str]
) -> None:
    agent = FakeAgent(server.channel())
    agent.register(allowed_apps=["sort"])
    at = ["--server", server.grpc]
    assert run(["profile", "sort", "--node", "node-1", *at, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["requested"]
    assert requested_apps(agent) == ["sort"]

    assert run(["profile", "sort", "--node", "node-1", *at]) == 0
    assert "kongming watch node-1" in " ".join(capsys.readouterr().out.split())
    for wrong, field in (
        (["profile", "rm", "--node", "node-1", *at], "apps"),
        (["profile", "sort", "--node", "nowhere", *at], "node"),
        (["profile", "sort", *at], "--node"),
        (["profile", "sort", "--node", "node-1", "--repeats", "2", *at], "--repeats"),
        (["profile", "sort", "--node", "node-1"], "--server"),
    ):
        assert run(wrong) == 2, wrong
        assert field in capsys.readouterr().err
    server.stop()
    assert run(["profile", "sort", "--node", "node-1", *at, "--timeout", "2"]) == 1
