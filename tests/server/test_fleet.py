"""Agents report to a real server, and people look at nodes."""

from __future__ import annotations

import itertools
import math
from pathlib import Path

import grpc
import pytest

from kongming.rpc.v1 import fleet_pb2, placements_pb2
from kongming.store import Store
from tests import builders
from tests.server.conftest import StartServer
from tests.server.fleet import IDLE, FakeAgent, moment
from tests.server.process import ServerProcess, eventually

READY, SILENT, SUSPECT = (
    fleet_pb2.NODE_STATE_READY,
    fleet_pb2.NODE_STATE_SILENT,
    fleet_pb2.NODE_STATE_SUSPECT,
)


@pytest.fixture
def agent(server: ServerProcess) -> FakeAgent:
    agent = FakeAgent(server.channel())
    agent.register(references=[agent.idle()])
    return agent


def test_a_registered_node_is_listed_with_its_facts(agent: FakeAgent) -> None:
    node = agent.node()
    assert node.state == READY
    assert node.facts.cpu_model == agent.facts.cpu_model
    assert node.HasField("last_heartbeat")
    assert not node.HasField("last_fingerprint")


def test_registering_again_changes_nothing_but_the_facts(agent: FakeAgent) -> None:
    first = agent.register()
    agent.report(agent.fingerprint())
    agent.facts = builders.node(id="node-1", name="renamed")
    assert agent.register().heartbeat_period == first.heartbeat_period
    assert agent.node().facts.name == "renamed"
    assert agent.node().HasField("last_fingerprint")


def test_an_unknown_node_is_asked_to_register(server: ServerProcess) -> None:
    stranger = FakeAgent(server.channel(), "stranger")
    assert stranger.heartbeat().register_again
    with pytest.raises(grpc.RpcError) as refused:
        stranger.report(stranger.fingerprint())
    assert refused.value.code() == grpc.StatusCode.NOT_FOUND


def test_a_node_that_was_only_measured_by_hand_is_asked_to_register(
    tmp_path: Path, start_server: StartServer
) -> None:
    url = f"sqlite:///{tmp_path / 'by-hand.db'}"
    with Store.open(url) as store:
        store.add_fingerprint(builders.fingerprint(IDLE), "adhoc")
    agent = FakeAgent(start_server(store_url=url).channel())
    assert agent.node().state == SILENT
    assert agent.heartbeat().register_again
    agent.register()
    assert not agent.heartbeat().register_again


def test_what_is_acknowledged_is_in_the_store(server: ServerProcess, agent: FakeAgent) -> None:
    prints = [agent.fingerprint(age_s=age) for age in (3.0, 2.0, 1.0)]
    answer = agent.report(*prints)
    assert list(answer.accepted) == [one.id for one in prints]
    with Store.open(server.store_url) as store:
        kept = store.fingerprints(node_id="node-1", purpose="live")
    assert {one.id for one in kept} == {one.id for one in prints}
    assert kept[0].times() == prints[-1].times()
    assert kept[0].node == agent.facts


def test_a_fingerprint_that_comes_twice_is_acknowledged_twice_and_kept_once(
    server: ServerProcess, agent: FakeAgent
) -> None:
    taken = agent.fingerprint()
    request = agent.request(taken)
    for _ in range(2):
        assert list(agent.send([request, request]).accepted) != []
    with Store.open(server.store_url) as store:
        assert [one.id for one in store.fingerprints(purpose="live")] == [taken.id]


def test_late_fingerprints_do_not_replace_newer_ones(agent: FakeAgent) -> None:
    ages = (30.0, 5.0, 90.0, 60.0)
    requests = [agent.request(agent.fingerprint(age_s=age)) for age in ages]
    for order in itertools.islice(itertools.permutations(requests), 0, None, 7):
        agent.send(order)
    newest = agent.node().last_fingerprint.ToSeconds()
    assert newest == requests[1].fingerprint.started_at.ToSeconds()


def test_a_fingerprint_may_come_without_the_facts_that_were_registered(agent: FakeAgent) -> None:
    request = agent.request(agent.fingerprint())
    request.fingerprint.ClearField("node")
    assert list(agent.send([request]).accepted) == [request.fingerprint.id]


@pytest.mark.parametrize("nonsense", [0.0, -1e-9, math.nan, math.inf, IDLE["compute.int"] / 1e6])
def test_nonsense_is_refused_and_its_node_marked(agent: FakeAgent, nonsense: float) -> None:
    good, bad = agent.fingerprint(), agent.fingerprint()
    answer = agent.send(
        [agent.request(good), agent.request(bad, readings={"compute.int": nonsense})]
    )
    assert list(answer.accepted) == [good.id]
    assert [one.id for one in answer.rejected] == [bad.id]
    assert answer.rejected[0].field.startswith("fingerprint.readings")
    node = agent.node()
    assert node.state == SUSPECT
    assert "compute.int" in node.reason + answer.rejected[0].field


def test_a_node_that_reports_sense_again_is_believed_again(
    server: ServerProcess, agent: FakeAgent
) -> None:
    agent.send([agent.request(agent.fingerprint(), readings={"compute.int": -1.0})])
    agent.report(agent.fingerprint(), agent.fingerprint())
    assert agent.node().state == SUSPECT
    server.restart()
    assert agent.node().state == SUSPECT
    agent.report(*(agent.fingerprint() for _ in range(3)))
    assert agent.node().state == READY


def test_what_is_only_malformed_does_not_make_a_node_suspect(agent: FakeAgent) -> None:
    wrong_cpu = agent.request(agent.fingerprint(cpu=99))
    other_node = agent.request(agent.fingerprint(node=builders.node(id="node-2")))
    no_purpose = agent.request(agent.fingerprint(), fleet_pb2.PURPOSE_UNSPECIFIED)
    answer = agent.send([wrong_cpu, other_node, no_purpose])
    assert [one.field for one in answer.rejected] == [
        "fingerprint.cpu",
        "fingerprint.node.id",
        "purpose",
    ]
    assert agent.node().state == READY


def test_an_estimate_is_used_and_never_kept(server: ServerProcess, agent: FakeAgent) -> None:
    estimate = agent.fingerprint()
    answer = agent.send([agent.request(estimate, fleet_pb2.PURPOSE_ESTIMATE)])
    assert list(answer.accepted) == [estimate.id]
    with Store.open(server.store_url) as store:
        assert estimate.id not in {one.id for one in store.fingerprints()}


def test_a_time_ahead_of_the_servers_is_replaced(server: ServerProcess, agent: FakeAgent) -> None:
    ahead = agent.fingerprint(age_s=-3600.0)
    agent.report(ahead)
    with Store.open(server.store_url) as store:
        (kept,) = store.fingerprints(purpose="live")
    assert kept.started_at < moment(-60.0)
    assert any("clock" in warning for warning in kept.warnings)


def test_runs_and_signatures_are_kept_once(server: ServerProcess, agent: FakeAgent) -> None:
    run = builders.run("sort", 2.0, IDLE)
    signature = builders.signature("sort", IDLE)
    for _ in range(2):
        answer = agent.report_runs([run], [signature])
        assert set(answer.accepted) == {run.id, signature.id}
    with Store.open(server.store_url) as store:
        assert [one.id for one in store.runs()] == [run.id]
        assert [one.id for one in store.signatures()] == [signature.id]
        assert store.runs()[0].fingerprint is not None


def test_a_run_that_cannot_be_true_is_refused_beside_one_that_can(agent: FakeAgent) -> None:
    good, bad = builders.run("sort", 2.0, IDLE), builders.run("sort", 2.0, wall_s=-1.0)
    other = builders.run("sort", 2.0, node_id="node-2")
    answer = agent.report_runs([good, bad, other])
    assert list(answer.accepted) == [good.id]
    assert {(one.id, one.field) for one in answer.rejected} == {
        (bad.id, "run.wall_seconds"),
        (other.id, "run.node_id"),
    }
    assert agent.node().state == SUSPECT


def test_a_finished_run_ends_its_placement(agent: FakeAgent) -> None:
    agent.placements.Bind(
        placements_pb2.BindRequest(placement_id="job-1", app="sort", node="node-1")
    )
    assert list(agent.heartbeat().placement_ids) == ["job-1"]
    agent.report_runs([builders.run("sort", 2.0, started_at=moment())], placement_id="job-1")
    assert list(agent.heartbeat().placement_ids) == []


def test_a_node_without_heartbeats_falls_silent_and_comes_back(start_server: StartServer) -> None:
    server = start_server(settings={"fleet.heartbeat_period_s": 0.2, "fleet.silent_after_s": 1.0})
    agent = FakeAgent(server.channel())
    agent.register()
    watch = agent.fleet.WatchNode(fleet_pb2.WatchNodeRequest(node="node-1"), timeout=30)
    assert next(watch).node.state == READY
    assert next(watch).node.state == SILENT
    agent.heartbeat()
    assert next(watch).node.state == READY


def test_a_watcher_sees_fingerprints_and_placements(agent: FakeAgent) -> None:
    watch = agent.fleet.WatchNode(fleet_pb2.WatchNodeRequest(node="node-1"), timeout=30)
    assert not next(watch).node.HasField("last_fingerprint")
    agent.report(agent.fingerprint())
    assert next(watch).node.HasField("last_fingerprint")
    agent.placements.Reserve(
        placements_pb2.ReserveRequest(placement_id="job-1", app="sort", node="node-1")
    )
    assert [one.app for one in next(watch).node.placements] == ["sort"]
    watch.cancel()


def test_watchers_are_told_when_the_server_ends(server: ServerProcess, agent: FakeAgent) -> None:
    watch = agent.fleet.WatchNode(fleet_pb2.WatchNodeRequest(node="node-1"))
    next(watch)
    assert server.stop() == 0
    with pytest.raises(grpc.RpcError) as ended:
        next(watch)
    assert ended.value.code() == grpc.StatusCode.UNAVAILABLE


def test_profiling_is_asked_for_what_the_node_itself_allows(
    server: ServerProcess, agent: FakeAgent
) -> None:
    agent.register(allowed_apps=["sort", "scan"])
    with pytest.raises(grpc.RpcError) as refused:
        agent.fleet.RequestProfile(fleet_pb2.RequestProfileRequest(node="node-1", apps=["rm"]))
    assert refused.value.code() == grpc.StatusCode.INVALID_ARGUMENT
    agent.fleet.RequestProfile(fleet_pb2.RequestProfileRequest(node="node-1", apps=["sort"]))
    server.restart()
    assert list(agent.heartbeat().profile_apps) == ["sort"]
    assert list(agent.heartbeat().profile_apps) == []


def test_a_request_to_profile_is_dropped_when_the_node_allows_it_no_more(agent: FakeAgent) -> None:
    agent.register(allowed_apps=["sort"])
    agent.fleet.RequestProfile(fleet_pb2.RequestProfileRequest(node="node-1", apps=["sort"]))
    agent.register(allowed_apps=["scan"])
    assert list(agent.heartbeat().profile_apps) == []


def test_a_peer_is_named_once_in_a_while(server: ServerProcess, agent: FakeAgent) -> None:
    other = FakeAgent(server.channel(), "node-2")
    other.register(peer_address="192.0.2.7:7402")
    named = agent.heartbeat()
    assert (named.peer_node_id, named.peer_address) == ("node-2", "192.0.2.7:7402")
    assert agent.heartbeat().peer_address == ""
    assert other.heartbeat().peer_address == ""


def test_what_was_timed_to_a_peer_is_kept(server: ServerProcess, agent: FakeAgent) -> None:
    FakeAgent(server.channel(), "node-2").register(peer_address="192.0.2.7:7402")
    for round_trip_s in (0.004, 0.0003):
        agent.heartbeat(
            peer_timing=fleet_pb2.PeerTiming(
                peer_node_id="node-2", round_trip_seconds=round_trip_s, bytes_per_second=1.1e9
            )
        )
    # Of a node that nobody knows, or of itself, it says nothing; the heartbeat counts all the same.
    for peer in ("stranger", "node-1"):
        agent.heartbeat(peer_timing=fleet_pb2.PeerTiming(peer_node_id=peer, round_trip_seconds=0.1))
    assert agent.node().state == READY
    metrics = server.get("/metrics")
    assert "kongming_server_peer_round_trip_seconds_count 2.0" in metrics
    assert "kongming_server_peer_rate_bytes_count 2.0" in metrics
    assert 'kongming_server_records_rejected_total{kind="peer-timing"} 2.0' in metrics
    for _ in range(2):
        # On disk at the end, and still there after a start that heard nothing new.
        server.stop()
        with Store.open(server.store_url) as store:
            kept = {one.node_id: one.document["peer_timings"] for one in store.agents()}
        server.start()
        assert list(kept["node-1"]) == ["node-2"]
        assert kept["node-1"]["node-2"][:2] == [0.0003, 1.1e9]
        assert kept["node-2"] == {}


@pytest.mark.parametrize("nonsense", [0.0, -1.0, math.nan, math.inf])
def test_a_network_that_cannot_be_marks_its_node(
    server: ServerProcess, agent: FakeAgent, nonsense: float
) -> None:
    FakeAgent(server.channel(), "node-2").register()
    agent.heartbeat(
        peer_timing=fleet_pb2.PeerTiming(peer_node_id="node-2", round_trip_seconds=nonsense)
    )
    assert agent.node().state == SUSPECT
    assert "round_trip_seconds" in agent.node().reason


def test_an_agent_is_asked_to_probe_when_a_placement_begins(agent: FakeAgent) -> None:
    assert not agent.heartbeat().probe_now
    agent.placements.Bind(
        placements_pb2.BindRequest(placement_id="job-1", app="sort", node="node-1")
    )
    assert agent.heartbeat().probe_now
    assert not agent.heartbeat().probe_now


def test_nodes_come_in_pages(server: ServerProcess) -> None:
    channel = server.channel()
    ids = [f"node-{number}" for number in range(5)]
    for node_id in ids:
        agent = FakeAgent(channel, node_id)
        agent.register()
    seen, token = [], ""
    while True:
        page = agent.fleet.ListNodes(fleet_pb2.ListNodesRequest(page_size=2, page_token=token))
        seen += [node.facts.id for node in page.nodes]
        token = page.next_page_token
        if not token:
            break
    assert seen == ids


def test_a_name_of_two_nodes_is_refused(server: ServerProcess) -> None:
    channel = server.channel()
    for node_id in ("node-1", "node-2"):
        agent = FakeAgent(channel, node_id, name="twin")
        agent.register()
    with pytest.raises(grpc.RpcError) as refused:
        next(agent.fleet.WatchNode(fleet_pb2.WatchNodeRequest(node="twin"), timeout=20))
    assert refused.value.code() == grpc.StatusCode.INVALID_ARGUMENT


def test_the_state_survives_a_restart(server: ServerProcess, agent: FakeAgent) -> None:
    taken = agent.fingerprint()
    agent.report(taken)
    agent.placements.Bind(
        placements_pb2.BindRequest(placement_id="job-1", app="sort", node="node-1")
    )
    before = agent.node()
    server.restart()
    after = agent.node()
    assert after.facts == before.facts
    assert after.last_fingerprint == before.last_fingerprint
    assert after.placements == before.placements
    assert after.state == READY
    assert not agent.heartbeat().register_again


def test_http_says_that_it_is_ready(server: ServerProcess) -> None:
    assert server.get("/readyz") == {"ready": True}
    assert eventually(lambda: "kongming_server_nodes" in server.get("/metrics"))
