"""A node is one agent's: another one's token or certificate does not speak for it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import grpc
import pytest
from kongming_server.nodes.ownership import Ownership
from kongming_server.nodes.registry import Agent
from kongming_server.security import Call, Caller, Role, current_call
from kongming_server.security.certificates import init_tls

from kongming.records.errors import AccessError
from tests import builders
from tests.server.conftest import StartServer
from tests.server.fleet import FakeAgent
from tests.server.process import ServerProcess, eventually
from tests.server.security.test_real_server import token_command

ALWAYS = {"security.authenticate": "always", "security.tokens_period_s": 0.05}


@pytest.fixture
def server(start_server: StartServer) -> ServerProcess:
    return start_server(settings=ALWAYS)


class Shows(grpc.UnaryUnaryClientInterceptor, grpc.StreamUnaryClientInterceptor):
    """Shows a token with every call."""

    def __init__(self, secret: str) -> None:
        self._headers = [("authorization", f"Bearer {secret}")]

    def intercept_unary_unary(self, continuation, details, request):  # type: ignore[no-untyped-def]
        return continuation(details._replace(metadata=self._headers), request)

    def intercept_stream_unary(self, continuation, details, requests):  # type: ignore[no-untyped-def]
        return continuation(details._replace(metadata=self._headers), requests)


def agent_with(server: ServerProcess, role: str = "agent") -> tuple[FakeAgent, str]:
    """An agent of node-1 with a token of its own, and the token's id."""
    made = token_command("add", "--role", role, "--store", server.store_url)
    channel = grpc.intercept_channel(server.channel(), Shows(made["token"]))
    agent = FakeAgent(channel)
    eventually(lambda: code_of(agent.heartbeat) is not grpc.StatusCode.UNAUTHENTICATED)
    return agent, made["id"]


def code_of(call: Callable[[], object]) -> grpc.StatusCode:
    try:
        call()
    except grpc.RpcError as error:
        code = error.code()
        assert isinstance(code, grpc.StatusCode)
        return code
    return grpc.StatusCode.OK


def refusals(agent: FakeAgent) -> set[grpc.StatusCode]:
    """What each call ends with by which an agent speaks for its node."""
    run = builders.run("sort", 1.0, node_id=agent.facts.id)
    return {
        code_of(agent.register),
        code_of(agent.heartbeat),
        code_of(lambda: agent.report(agent.fingerprint())),
        code_of(lambda: agent.report_runs([run])),
    }


FORBIDDEN, OK = {grpc.StatusCode.PERMISSION_DENIED}, {grpc.StatusCode.OK}


def test_another_agents_token_speaks_for_no_node_of_mine(server: ServerProcess) -> None:
    mine, _ = agent_with(server)
    mine.register()
    other, _ = agent_with(server)
    assert refusals(other) == FORBIDDEN
    # Nothing of it came in, not even the facts.
    other.facts = builders.node(id="node-1", name="taken")
    assert code_of(other.register) is grpc.StatusCode.PERMISSION_DENIED
    operator, _ = agent_with(server, "operator")
    assert operator.node().facts.name == "node-1"
    assert not operator.node().HasField("last_fingerprint")
    assert refusals(mine) == OK
    # A node of its own is not denied to the other one.
    other.facts = builders.node(id="node-2", name="node-2")
    assert refusals(other) == OK


def test_operators_speak_for_every_node_and_take_none(server: ServerProcess) -> None:
    operator, _ = agent_with(server, "operator")
    operator.register()
    mine, _ = agent_with(server)
    mine.register()
    assert refusals(operator) == OK
    assert refusals(mine) == OK


def test_only_an_agents_reports_are_a_sign_of_its_life(server: ServerProcess) -> None:
    operator, _ = agent_with(server, "operator")
    mine, _ = agent_with(server)
    mine.register()

    def heard(who: FakeAgent) -> bool:
        """Whether the node was heard of by a run that is accepted."""
        run = builders.run("sort", 1.0, node_id="node-1")
        before = operator.node().last_heartbeat.ToNanoseconds()
        assert list(who.report_runs([run]).accepted) == [run.id]
        return operator.node().last_heartbeat.ToNanoseconds() > before

    scheduler, _ = agent_with(server, "scheduler")
    assert [heard(who) for who in (scheduler, operator, mine)] == [False, False, True]


def test_where_nobody_is_asked_who_they_are_heartbeats_are_the_sign_of_life(
    start_server: StartServer,
) -> None:
    agent = FakeAgent(start_server().channel())
    agent.register()
    first = agent.node().last_heartbeat.ToNanoseconds()
    agent.report_runs([builders.run("sort", 1.0, node_id="node-1")])
    assert agent.node().last_heartbeat.ToNanoseconds() == first
    agent.heartbeat()
    assert agent.node().last_heartbeat.ToNanoseconds() > first


def test_it_outlives_a_restart(server: ServerProcess) -> None:
    mine, _ = agent_with(server)
    mine.register()
    other, _ = agent_with(server)
    server.kill()
    server.restart()
    eventually(lambda: code_of(mine.heartbeat) is grpc.StatusCode.OK)
    assert refusals(other) == FORBIDDEN


def test_a_node_is_free_when_its_token_is_revoked(server: ServerProcess) -> None:
    mine, token_id = agent_with(server)
    mine.register()
    other, _ = agent_with(server)
    assert refusals(other) == FORBIDDEN
    token_command("revoke", token_id, "--store", server.store_url)
    eventually(lambda: code_of(other.heartbeat) is grpc.StatusCode.OK)
    assert refusals(other) == OK


def test_an_operator_releases_a_node(server: ServerProcess) -> None:
    mine, token_id = agent_with(server)
    mine.register()
    other, _ = agent_with(server)
    released = token_command("release", "node-1", "--store", server.store_url)
    assert released == {"node": "node-1", "released_from": f"token {token_id}"}
    eventually(lambda: code_of(other.heartbeat) is grpc.StatusCode.OK)
    # From now on it is the other one's.
    assert refusals(mine) == FORBIDDEN


def test_a_certificate_holds_a_node_by_its_name(start_server: StartServer, tmp_path: Path) -> None:
    tls = tmp_path / "tls"
    init_tls(tls)
    server = start_server(
        options=[
            *("--certificate", str(tls / "server.crt"), "--key", str(tls / "server.key")),
            *("--client-ca", str(tls / "ca.crt")),
        ]
    )

    def certified() -> grpc.Channel:
        key, chain = ((tls / f"client-agent.{end}").read_bytes() for end in ("key", "crt"))
        root = (tls / "ca.crt").read_bytes()
        return grpc.secure_channel(server.grpc, grpc.ssl_channel_credentials(root, key, chain))

    made = token_command("add", "--role", "agent", "--store", server.store_url)
    with certified() as channel:
        FakeAgent(channel).register()
        other = FakeAgent(grpc.intercept_channel(channel, Shows(made["token"])))
        eventually(lambda: code_of(other.heartbeat) is not grpc.StatusCode.UNAUTHENTICATED)
        assert refusals(other) == FORBIDDEN
    # A renewed certificate of the same name is the same holder.
    init_tls(tls, renew=True)
    with certified() as channel:
        assert refusals(FakeAgent(channel)) == OK


def claim(ownership: Ownership, agent: Agent, caller: Caller) -> bool:
    before = current_call.set(Call("/method", "id", caller))
    try:
        return ownership.claim(agent)
    finally:
        current_call.reset(before)


def test_what_is_free_is_taken_once() -> None:
    valid = {"a", "b"}
    ownership = Ownership(valid.__contains__)
    agent = Agent(builders.node())
    first, second = (Caller(Role.AGENT, "name", f"token {one}") for one in "ab")
    assert claim(ownership, agent, first)
    assert not claim(ownership, agent, first)
    with pytest.raises(AccessError, match="another agent"):
        claim(ownership, agent, second)
    assert agent.bound_to == "token a"
    valid.discard("a")
    assert claim(ownership, agent, second)
    # Where nobody is asked who they are, nobody takes anything.
    free = Agent(builders.node())
    assert not claim(ownership, free, Caller(Role.OPERATOR, "anybody", ""))
    assert free.bound_to == ""
