"""What an agent says in one call, against a real server."""

from __future__ import annotations

import grpc
import pytest

from kongming.rpc.v1 import fleet_pb2
from kongming.store import Store
from tests.server.conftest import StartServer
from tests.server.fleet import FakeAgent
from tests.server.process import ServerProcess


@pytest.fixture
def agent(server: ServerProcess) -> FakeAgent:
    agent = FakeAgent(server.channel())
    agent.register(references=[agent.idle()])
    return agent


def test_fingerprints_and_a_heartbeat_in_one_call(server: ServerProcess, agent: FakeAgent) -> None:
    prints = [agent.fingerprint(age_s=age) for age in (2.0, 1.0)]
    answer = agent.say(*prints, heartbeat={"probe_cost": 0.25})
    assert list(answer.accepted) == [fingerprint.id for fingerprint in prints]
    assert answer.HasField("instructions")
    # What is acknowledged is on disk.
    with Store.open(server.store_url) as store:
        assert {fingerprint.id for fingerprint in store.fingerprints(purpose="live")} == {
            p.id for p in prints
        }
    assert agent.node().probe_cost == 0.25


def test_each_part_may_be_left_out(agent: FakeAgent) -> None:
    alone = agent.say(heartbeat={"probe_cost": 0.5})
    assert not alone.accepted
    assert agent.node().probe_cost == 0.5
    (accepted,) = agent.say(agent.fingerprint()).accepted
    assert accepted
    assert not agent.say(agent.fingerprint()).HasField("instructions")


def test_orders_come_with_the_answer(agent: FakeAgent) -> None:
    agent.register(allowed_apps=["sort"])
    agent.fleet.RequestProfile(
        fleet_pb2.RequestProfileRequest(node="node-1", apps=["sort"]), timeout=100
    )
    instructions = agent.say(agent.fingerprint(), heartbeat={}).instructions
    assert list(instructions.profile_apps) == ["sort"]
    # The agent has spoken again over the connection, so it has heard it.
    assert not agent.say(heartbeat={}).instructions.profile_apps


def test_nonsense_is_refused_and_the_rest_is_kept(agent: FakeAgent) -> None:
    good, bad = agent.fingerprint(), agent.fingerprint()
    requests = [agent.request(good), agent.request(bad, readings={"compute.int": -1.0})]
    answer = agent.send(requests)
    assert list(answer.accepted) == [good.id]
    assert [rejection.id for rejection in answer.rejected] == [bad.id]


def test_a_node_that_is_not_registered_is_told(server: ServerProcess) -> None:
    stranger = FakeAgent(server.channel(), "stranger")
    assert stranger.say(heartbeat={}).instructions.register_again
    with pytest.raises(grpc.RpcError) as refused:
        stranger.say(stranger.fingerprint())
    assert refused.value.code() is grpc.StatusCode.NOT_FOUND


def test_too_much_at_once_is_refused(start_server: StartServer) -> None:
    agent = FakeAgent(start_server(settings={"ingest.report_records": 2}).channel())
    agent.register(references=[agent.idle()])
    with pytest.raises(grpc.RpcError) as refused:
        agent.say(*(agent.fingerprint() for _ in range(3)))
    assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert "fingerprints" in refused.value.details()


def test_a_fingerprint_alone_is_a_sign_of_life(agent: FakeAgent) -> None:
    before = agent.node().last_heartbeat.ToNanoseconds()
    agent.say(agent.fingerprint(1.0))
    assert agent.node().last_heartbeat.ToNanoseconds() > before
