"""A node is one agent's: another one's token or certificate does not speak for it."""

from __future__ import annotations

import dataclasses
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import grpc
import pytest
from cryptography.hazmat.primitives import serialization
from kongming_server.configuration.limits import Limits
from kongming_server.configuration.settings import Security
from kongming_server.monitoring.metrics import Metrics
from kongming_server.nodes.ownership import Ownership
from kongming_server.nodes.registry import Agent, Agents
from kongming_server.security import Call, Caller, Guard, Role, certificates, current_call
from kongming_server.security.certificates import init_tls

from kongming.records.errors import AccessError
from kongming.rpc.v1 import assignments_pb2, fleet_pb2
from kongming.store import Store
from tests import builders
from tests.server.conftest import StartServer
from tests.server.credentials import Shows, agent_with, code_of
from tests.server.fleet import FakeAgent
from tests.server.process import ServerProcess, eventually
from tests.server.security.test_real_server import token_command

ALWAYS = {"security.authenticate": "always", "security.tokens_period_s": 0.05}


@pytest.fixture
def server(start_server: StartServer) -> ServerProcess:
    return start_server(settings=ALWAYS)


def refusals(agent: FakeAgent) -> set[grpc.StatusCode]:
    """The status codes of all calls by which an agent speaks for its node."""
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


def test_a_token_that_names_no_nodes_makes_up_no_fleet(server: ServerProcess) -> None:
    mine, _ = agent_with(server)
    named, _ = agent_with(server, nodes=["rack-7-*"])

    def registers(who: FakeAgent, name: str) -> grpc.StatusCode:
        who.facts = builders.node(id=name, name=name)
        return code_of(who.register)

    codes = [registers(mine, f"made-up-{number}") for number in range(6)]
    assert set(codes[:4]) == OK
    assert set(codes[4:]) == {grpc.StatusCode.RESOURCE_EXHAUSTED}
    # Those that it has go on, and an operator's pattern is for as many as there are.
    assert registers(mine, "made-up-0") is grpc.StatusCode.OK
    assert {registers(named, f"rack-7-{number}") for number in range(6)} == OK


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
        """Whether a run that is accepted counts as a sign of life of the node."""
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


def test_the_nodes_of_a_revoked_token_wait_for_an_operator(server: ServerProcess) -> None:
    mine, token_id = agent_with(server)
    mine.register()
    named, _ = agent_with(server, nodes=["node-*"])
    other, _ = agent_with(server)
    assert refusals(other) == refusals(named) == FORBIDDEN
    token_command("revoke", token_id, "--store", server.store_url)
    eventually(lambda: code_of(mine.heartbeat) is grpc.StatusCode.UNAUTHENTICATED)
    # Not the next one that comes, but the one that an operator has named it to.
    assert refusals(other) == FORBIDDEN
    assert refusals(named) == OK


def test_an_operator_releases_all_nodes_of_a_token(server: ServerProcess) -> None:
    mine, token_id = agent_with(server)
    mine.register()
    other, _ = agent_with(server)
    released = token_command("release", "--of", token_id, "--store", server.store_url)
    assert released == {"nodes": ["node-1"], "released_from": f"token {token_id}"}
    eventually(lambda: code_of(other.heartbeat) is grpc.StatusCode.OK)


def test_a_token_with_names_is_for_nodes_of_these_names_and_they_are_for_it(
    server: ServerProcess,
) -> None:
    mine, _ = agent_with(server, nodes=["node-1", "rack-7-*"])
    stranger, _ = agent_with(server)
    # Before the agent that it is for has come.
    for facts in ({"id": "x", "name": "rack-7-3"}, {"id": "node-1", "name": "innocent"}):
        stranger.facts = builders.node(**facts)
        assert code_of(stranger.register) is grpc.StatusCode.PERMISSION_DENIED
    mine.facts = builders.node(id="x", name="node-2")
    assert code_of(mine.register) is grpc.StatusCode.PERMISSION_DENIED
    for id_, name in (("y", "node-1"), ("z", "rack-7-3")):
        mine.facts = builders.node(id=id_, name=name)
        assert refusals(mine) == OK


def test_a_token_with_names_takes_no_id_that_another_token_names(server: ServerProcess) -> None:
    mine, _ = agent_with(server, nodes=["node-7"])
    thief, _ = agent_with(server, nodes=["thief"])
    thief.facts = builders.node(id="node-7", name="thief")
    assert code_of(thief.register) is grpc.StatusCode.PERMISSION_DENIED
    mine.facts = builders.node(id="node-7", name="node-7")
    assert refusals(mine) == OK


@pytest.mark.parametrize(
    "text", ["node-1 ", "n\N{CYRILLIC SMALL LETTER O}de-1", "n[1-9]", "a,b", "--all", "..", ":"]
)
def test_a_node_has_no_name_that_looks_like_another_one(server: ServerProcess, text: str) -> None:
    mine, _ = agent_with(server)
    for facts in ({"id": text, "name": "n"}, {"id": "n", "name": text}):
        mine.facts = builders.node(**facts)
        assert code_of(mine.register) is grpc.StatusCode.INVALID_ARGUMENT


@pytest.mark.parametrize(
    "facts",
    [
        {"id": "other", "name": "node-1"},
        {"id": "other", "name": "node-1.elsewhere"},
        {"id": "node-1.example", "name": "other"},
        # By which it could bind assignments that are to be given to node-1.
        {"id": "node-1", "name": "other"},
        {"id": "other", "name": "id-1.elsewhere"},
        # Which people, and names of hosts, take for the same.
        {"id": "other", "name": "Node-1"},
        {"id": "NODE-1.example", "name": "other"},
    ],
)
def test_a_name_is_its_first_holders(server: ServerProcess, facts: dict[str, str]) -> None:
    mine, _ = agent_with(server)
    mine.facts = builders.node(id="id-1", name="node-1.example")
    mine.register()
    if facts["name"] == "node-1":
        mine.facts = builders.node(id="id-1", name="node-1")
        mine.register()
    other, _ = agent_with(server)
    other.facts = builders.node(**facts)
    assert code_of(other.register) is grpc.StatusCode.ALREADY_EXISTS
    operator, _ = agent_with(server, "operator")
    [node] = operator.fleet.ListNodes(fleet_pb2.ListNodesRequest(), timeout=20).nodes
    assert node.facts.id == "id-1"


@contextmanager
def _full(file: Path, table: str) -> Iterator[None]:
    """No row of a table can be written meanwhile."""
    events = ("INSERT", "UPDATE")
    with closing(sqlite3.connect(file, timeout=20)) as database:
        for event in events:
            database.execute(
                f"CREATE TRIGGER full_{event} BEFORE {event} ON {table} "
                "BEGIN SELECT RAISE(ABORT, 'there is no room'); END"
            )
        database.commit()
        yield
        for event in events:
            database.execute(f"DROP TRIGGER full_{event}")
        database.commit()


def test_a_node_keeps_the_name_that_an_older_server_took(
    start_server: StartServer, tmp_path: Path
) -> None:
    url = f"sqlite:///{tmp_path / 'old.db'}"
    with Store.open(url) as store:
        for id_, name in (("id-1", "web"), ("id-2", "Web"), ("-id-3", "-web")):
            facts = builders.node(id=id_, name=name)
            store.put_node(facts)
            store.put_agent(id_, Agent(facts).to_document(), 0.0)
    server = start_server(store_url=url, settings=ALWAYS)
    agents = [agent_with(server)[0] for _ in range(3)]
    nodes = [("id-1", "web"), ("id-2", "Web"), ("-id-3", "-web")]
    for agent, (id_, name) in zip(agents, nodes, strict=True):
        agent.facts = builders.node(id=id_, name=name)
        assert code_of(agent.heartbeat) is grpc.StatusCode.OK
    # Each is another one's now; the facts are the same, and then a new kernel's.
    for kernel in (agents[0].facts.kernel, "99.1"):
        for agent in agents:
            agent.facts = dataclasses.replace(agent.facts, kernel=kernel)
            assert code_of(agent.register) is grpc.StatusCode.OK
    # New facts that the store cannot take for a while make it no new node.
    agents[1].facts = dataclasses.replace(agents[1].facts, kernel="99.2")
    with _full(tmp_path / "old.db", "node"):
        assert code_of(agents[1].register) is not grpc.StatusCode.OK
        assert agents[1].send((), {}).instructions.register_again
    assert code_of(agents[1].register) is grpc.StatusCode.OK
    with Store.open(url) as store:
        assert store.node("id-2").kernel == "99.2"
    # What is new is looked at as ever.
    agents[1].facts = dataclasses.replace(agents[1].facts, name="WEB")
    assert code_of(agents[1].register) is grpc.StatusCode.ALREADY_EXISTS
    agents[2].facts = dataclasses.replace(agents[2].facts, name="-new")
    assert code_of(agents[2].register) is grpc.StatusCode.INVALID_ARGUMENT


def test_a_node_without_an_agent_holds_no_name(start_server: StartServer, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'by-hand.db'}"
    with Store.open(url) as store:
        store.put_node(builders.node(id="former", name="web"))
    server = start_server(store_url=url, settings=ALWAYS)
    mine, _ = agent_with(server)
    mine.facts = builders.node(id="new", name="web")
    assert code_of(mine.register) is grpc.StatusCode.OK
    other, _ = agent_with(server, nodes=["web"])
    other.facts = builders.node(id="newer", name="web")
    assert code_of(other.register) is grpc.StatusCode.ALREADY_EXISTS


def test_nodes_measured_by_hand_are_no_fleet_of_a_token_either(
    start_server: StartServer, tmp_path: Path
) -> None:
    url = f"sqlite:///{tmp_path / 'by-hand.db'}"
    names = [f"n{number}" for number in range(7)]
    with Store.open(url) as store:
        for name in names:
            store.put_node(builders.node(id=name, name=name))
    server = start_server(store_url=url, settings=ALWAYS)
    named, _ = agent_with(server, nodes=["n0"])
    thief, _ = agent_with(server)

    def calls(who: FakeAgent, name: str) -> set[grpc.StatusCode]:
        who.facts = builders.node(id=name, name=name)
        return {code_of(lambda: who.report(who.fingerprint())), code_of(who.register)}

    # It has no agent yet, but a token is for it.
    assert calls(thief, "n0") == FORBIDDEN
    assert calls(named, "n0") == OK
    assert [calls(thief, name) for name in names[1:]] == [
        *[OK] * 4,
        *[{grpc.StatusCode.RESOURCE_EXHAUSTED}] * 2,
    ]


def test_nodes_that_were_registered_before_are_no_new_ones_of_a_token(
    start_server: StartServer, tmp_path: Path
) -> None:
    """As while no caller had to identify itself, and after their release."""
    url = f"sqlite:///{tmp_path / 'former.db'}"
    names = [f"n{number}" for number in range(6)]
    with Store.open(url) as store:
        for name in names:
            facts = builders.node(id=name, name=name)
            store.put_node(facts)
            store.put_agent(name, Agent(facts).to_document(), 0.0)
    mine, _ = agent_with(start_server(store_url=url, settings=ALWAYS))

    def on(name: str) -> set[grpc.StatusCode]:
        mine.facts = builders.node(id=name, name=name)
        return refusals(mine)

    assert [on(name) for name in names] == [OK] * 6
    # They count where another one is to come.
    mine.facts = builders.node(id="new", name="new")
    assert code_of(mine.register) is grpc.StatusCode.RESOURCE_EXHAUSTED


def test_names_differ_by_more_than_their_case_for_tokens_with_names_too(
    server: ServerProcess,
) -> None:
    mine, _ = agent_with(server, nodes=["web", "rack-*"])
    pattern, _ = agent_with(server, nodes=["[wW]*"])
    stranger, _ = agent_with(server)
    # Before the agent that it is for has come.
    for name in ("WEB", "Rack-1"):
        stranger.facts = builders.node(id="x", name=name)
        assert code_of(stranger.register) is grpc.StatusCode.PERMISSION_DENIED
    mine.facts = builders.node(id="web", name="web")
    mine.register()
    for facts in ({"id": "x", "name": "WEB"}, {"id": "Web", "name": "w"}):
        pattern.facts = builders.node(**facts)
        assert code_of(pattern.register) is grpc.StatusCode.ALREADY_EXISTS
    pattern.facts = builders.node(id="x", name="web.example")
    assert code_of(pattern.register) is grpc.StatusCode.OK


def test_an_agent_binds_on_its_own_node_alone(server: ServerProcess) -> None:
    mine, _ = agent_with(server)
    mine.register()
    thief, _ = agent_with(server)
    thief.facts = builders.node(id="node-2", name="node-2")
    thief.register()
    operator, _ = agent_with(server, "operator")
    operator.assignments.Reserve(
        assignments_pb2.ReserveRequest(assignment_id="secret", app="sort", node="node-1"),
        timeout=20,
    )

    def bind(who: FakeAgent, id_: str, node: str = "") -> grpc.StatusCode:
        request = assignments_pb2.BindRequest(assignment_id=id_, app="hog", node=node)
        return code_of(lambda: who.assignments.Bind(request, timeout=20))

    forbidden = grpc.StatusCode.PERMISSION_DENIED
    assert bind(thief, "ghost:node-1", "node-1") is forbidden
    assert bind(thief, "secret", "node-2") is forbidden
    assert bind(thief, "secret") is grpc.StatusCode.INVALID_ARGUMENT
    # Nor does it take an id that a scheduler is to give to another node's job.
    assert bind(thief, "slurm:c:1:0:node-1", "node-2") is forbidden
    assert bind(thief, "slurm:c:1:0:node-2", "node-2") is grpc.StatusCode.OK
    assert [assignment.app for assignment in operator.node_of("node-1").assignments] == ["sort"]


def test_a_run_ends_no_assignment_of_another_node(server: ServerProcess) -> None:
    mine, _ = agent_with(server)
    mine.register()
    thief, _ = agent_with(server)
    thief.facts = builders.node(id="node-2", name="node-2")
    thief.register()
    scheduler, _ = agent_with(server, "operator")
    scheduler.assignments.Reserve(
        assignments_pb2.ReserveRequest(assignment_id="job", app="sort", node="node-1"), timeout=20
    )
    run = builders.run("sort", 1.0, node_id="node-2", id="stolen")
    assert list(thief.report_runs([run], assignment_id="job").accepted) == ["stolen"]
    assert [assignment.assignment_id for assignment in scheduler.node_of("node-1").assignments] == [
        "job"
    ]
    # The true run of this id is another record, and ends it.
    true = builders.run("sort", 1.0, node_id="node-1", id="stolen")
    assert list(mine.report_runs([true], assignment_id="job").accepted) == ["stolen"]
    assert not scheduler.node_of("node-1").assignments
    with Store.open(server.store_url) as store:
        assert {run.node_id for run in store.runs()} == {"node-1", "node-2"}


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

    created = token_command("add", "--role", "agent", "--store", server.store_url)
    with certified() as channel:
        FakeAgent(channel).register()
        other = FakeAgent(grpc.intercept_channel(channel, Shows(created["token"])))
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


@dataclass
class FakeTokens:
    valid: set[str]
    patterns: Mapping[str, str] = field(default_factory=dict)

    def in_force(self, token_id: str) -> bool:
        return token_id in self.valid

    def naming(self, node: str) -> Sequence[str]:
        return [token for token, each in self.patterns.items() if fnmatchcase(node, each)]


def test_what_is_free_is_taken_once() -> None:
    tokens = FakeTokens({"a", "b", "c"})
    ownership = Ownership(tokens)
    agent = Agent(builders.node(name="n1"))
    first, second = (Caller(Role.AGENT, "name", f"token {token_id}") for token_id in "ab")
    third, fourth = (
        Caller(Role.AGENT, "name", "token c", nodes=(name,)) for name in ("n[1-3]", "n4")
    )
    assert claim(ownership, agent, first)
    assert not claim(ownership, agent, first)
    for other in (second, third):
        with pytest.raises(AccessError, match="another agent"):
            claim(ownership, agent, other)
    assert agent.bound_to == "token a"
    tokens.valid.discard("a")
    for other in (second, fourth):
        with pytest.raises(AccessError, match="another agent"):
            claim(ownership, agent, other)
    assert claim(ownership, agent, third)
    # Where nobody is asked who they are, nobody takes anything.
    free = Agent(builders.node(name="n1"))
    assert not claim(ownership, free, Caller(Role.OPERATOR, "anybody", ""))
    assert free.bound_to == ""
    with pytest.raises(AccessError, match="not for a node"):
        claim(ownership, free, fourth)


@pytest.mark.parametrize("registered", [False, True])
@pytest.mark.parametrize("holder", ["", "token revoked"])
def test_the_id_of_a_known_node_is_no_name_for_others(holder: str, registered: bool) -> None:
    """A pattern is for names; that an id looks like one of them was nobody's choice."""
    ownership = Ownership(FakeTokens({"mine", "rack"}, {"mine": "n1", "rack": "n*"}))
    caller = Caller(Role.AGENT, "name", "token mine", nodes=("n1",))
    facts = builders.node(id="n-77aa", name="n1")
    agent = Agent(facts, registered=registered, bound_to=holder)
    agents = Agents()
    agents.put(facts).registered = registered
    before = current_call.set(Call("/method", "id", caller))
    try:
        ownership.admit(facts, agents)
        assert ownership.claim(agent)
        # An id that is not known yet was chosen by the caller.
        with pytest.raises(AccessError, match="Another token"):
            ownership.admit(facts, Agents())
    finally:
        current_call.reset(before)


def test_a_released_node_waits_for_the_token_that_names_it() -> None:
    ownership = Ownership(FakeTokens({"a", "b"}, {"a": "n1", "b": "id-2"}))
    stranger = Caller(Role.AGENT, "name", "token c")
    with pytest.raises(AccessError, match="Another token"):
        claim(ownership, Agent(builders.node(id="id-1", name="n1"), registered=True), stranger)
    assert claim(ownership, Agent(builders.node(id="id-2", name="n2"), registered=True), stranger)


def test_a_certificate_of_the_same_common_name_is_for_its_own_nodes() -> None:
    ownership = Ownership(FakeTokens(set()))
    agent = Agent(builders.node(name="n1"))
    mine, thief = (
        Caller(Role.AGENT, "n1", f"certificate {name}", nodes=(name,)) for name in ("n1", "thief")
    )
    assert claim(ownership, agent, mine)
    with pytest.raises(AccessError, match="not for a node"):
        claim(ownership, agent, thief)


def test_a_certificate_is_for_the_nodes_that_it_names() -> None:
    authority = certificates._authority(days=1)
    until = datetime.now(UTC) + timedelta(days=1)

    def nodes(names: Sequence[str], **settings: Any) -> tuple[str, ...]:
        alternatives = [certificates._alternative(name) for name in names]
        leaf = certificates._leaf(authority, "n1", Role.AGENT, alternatives, until)
        content = leaf.certificate.public_bytes(serialization.Encoding.PEM)
        guard = Guard(Security(authenticate="always", **settings), Limits(), metrics=Metrics())
        return guard.admit(
            "/kongming.rpc.v1.Fleet/Register", "ipv4:1.2.3.4:5", None, content
        ).caller.nodes

    assert nodes([]) == ()
    assert nodes([], agents_by_name=True) == ("n1",)
    assert nodes(["n2", "*.rack"], agents_by_name=True) == ("n2", "*.rack")
