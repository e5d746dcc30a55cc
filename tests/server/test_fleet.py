"""Agents report to a real server, and people look at nodes."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable
from pathlib import Path

import grpc
import pytest

from kongming.rpc.record_codec import run_to_message
from kongming.rpc.v1 import assignments_pb2, fleet_pb2, profiles_pb2, profiles_pb2_grpc
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
    assert agent.node().state == fleet_pb2.NODE_STATE_STORED
    assert agent.heartbeat().register_again
    agent.register()
    assert not agent.heartbeat().register_again


def test_what_is_acknowledged_is_in_the_store(server: ServerProcess, agent: FakeAgent) -> None:
    prints = [agent.fingerprint(age_s=age) for age in (3.0, 2.0, 1.0)]
    answer = agent.report(*prints)
    assert list(answer.accepted) == [fingerprint.id for fingerprint in prints]
    with Store.open(server.store_url) as store:
        stored = store.fingerprints(node_id="node-1", purpose="live")
    assert {fingerprint.id for fingerprint in stored} == {fingerprint.id for fingerprint in prints}
    assert stored[0].times() == prints[-1].times()
    assert stored[0].node == agent.facts


def test_a_fingerprint_that_comes_twice_is_acknowledged_twice_and_kept_once(
    server: ServerProcess, agent: FakeAgent
) -> None:
    taken = agent.fingerprint()
    request = agent.request(taken)
    for _ in range(2):
        assert list(agent.send([request, request]).accepted) != []
    with Store.open(server.store_url) as store:
        assert [fingerprint.id for fingerprint in store.fingerprints(purpose="live")] == [taken.id]


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
    assert [rejection.id for rejection in answer.rejected] == [bad.id]
    assert answer.rejected[0].field.startswith("fingerprint.readings")
    node = agent.node()
    assert node.state == SUSPECT
    assert "compute.int" in node.reason + answer.rejected[0].field


def test_a_node_that_reports_plausible_values_again_is_believed_again(
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
    assert [rejection.field for rejection in answer.rejected] == [
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
        assert estimate.id not in {fingerprint.id for fingerprint in store.fingerprints()}


def test_a_time_ahead_of_the_servers_is_replaced(server: ServerProcess, agent: FakeAgent) -> None:
    ahead = agent.fingerprint(age_s=-3600.0)
    agent.report(ahead)
    with Store.open(server.store_url) as store:
        (stored,) = store.fingerprints(purpose="live")
    assert stored.started_at < moment(-60.0)
    assert any("clock" in warning for warning in stored.warnings)


def test_runs_and_signatures_are_kept_once(server: ServerProcess, agent: FakeAgent) -> None:
    run = builders.run("sort", 2.0, IDLE)
    signature = builders.signature("sort", IDLE)
    for _ in range(2):
        answer = agent.report_runs([run], [signature])
        assert set(answer.accepted) == {run.id, signature.id}
    with Store.open(server.store_url) as store:
        assert [stored.id for stored in store.runs()] == [run.id]
        assert [stored.id for stored in store.signatures()] == [signature.id]
        assert store.runs()[0].fingerprint is not None


def test_an_implausible_run_is_refused_and_the_other_is_kept(agent: FakeAgent) -> None:
    good, bad = builders.run("sort", 2.0, IDLE), builders.run("sort", 2.0)
    other = builders.run("sort", 2.0, node_id="node-2")
    reported = [
        fleet_pb2.ReportedRun(sequence=number, run=run_to_message(run))
        for number, run in enumerate((good, bad, other), start=1)
    ]
    reported[1].run.wall_seconds = -1.0
    request = fleet_pb2.ReportRunsRequest(node_id=agent.facts.id, runs=reported)
    answer = agent.fleet.ReportRuns(request, timeout=100)
    assert list(answer.accepted) == [good.id]
    assert {(rejection.id, rejection.field) for rejection in answer.rejected} == {
        (bad.id, "run.wall_seconds"),
        (other.id, "run.node_id"),
    }
    assert agent.node().state == SUSPECT


def test_a_finished_run_ends_its_assignment(agent: FakeAgent) -> None:
    agent.assignments.Bind(
        assignments_pb2.BindRequest(assignment_id="job-1", app="sort", node="node-1")
    )
    assert list(agent.heartbeat().assignment_ids) == ["job-1"]
    agent.report_runs([builders.run("sort", 2.0, started_at=moment())], assignment_id="job-1")
    assert list(agent.heartbeat().assignment_ids) == []


def test_a_node_without_heartbeats_falls_silent_and_comes_back(start_server: StartServer) -> None:
    server = start_server(settings={"fleet.heartbeat_period_s": 0.2, "fleet.silent_after_s": 3.0})
    agent = FakeAgent(server.channel())
    agent.register(references=[agent.idle()])
    watch = agent.fleet.WatchNode(fleet_pb2.WatchNodeRequest(node="node-1"), timeout=120)
    assert next(watch).node.state == READY
    assert next(watch).node.state == SILENT
    agent.heartbeat()
    assert next(watch).node.state == READY


def test_a_machine_that_was_installed_anew_is_meant_by_its_name(start_server: StartServer) -> None:
    server = start_server(settings={"fleet.heartbeat_period_s": 0.2, "fleet.silent_after_s": 5.0})
    former, present = (FakeAgent(server.channel(), id_, name="n1") for id_ in ("a", "b"))
    request = assignments_pb2.ReserveRequest(assignment_id="job-1", app="sort", node="n1")
    former.register()
    present.register()
    with pytest.raises(grpc.RpcError) as refused:
        present.assignments.Reserve(request)
    assert refused.value.code() == grpc.StatusCode.INVALID_ARGUMENT

    def node_id() -> str:
        present.heartbeat()
        try:
            return str(present.assignments.Reserve(request).assignment.node_id)
        except grpc.RpcError:
            return ""

    assert eventually(node_id) == "b"


def test_a_watcher_sees_fingerprints_and_assignments(agent: FakeAgent) -> None:
    watch = agent.fleet.WatchNode(fleet_pb2.WatchNodeRequest(node="node-1"), timeout=100)
    assert not next(watch).node.HasField("last_fingerprint")
    agent.report(agent.fingerprint())
    assert next(watch).node.HasField("last_fingerprint")
    agent.assignments.Reserve(
        assignments_pb2.ReserveRequest(assignment_id="job-1", app="sort", node="node-1")
    )
    assert [assignment.app for assignment in next(watch).node.assignments] == ["sort"]
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


def test_an_agent_is_asked_to_probe_when_an_assignment_begins(agent: FakeAgent) -> None:
    assert not agent.heartbeat().probe_now
    agent.assignments.Bind(
        assignments_pb2.BindRequest(assignment_id="job-1", app="sort", node="node-1")
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


def test_a_page_is_bounded_in_bytes(server: ServerProcess) -> None:
    channel = server.channel()
    large = {"note": "x" * 60_000}
    for number in range(80):
        FakeAgent(channel, f"node-{number:02}", cgroup=large).register()
    agent = FakeAgent(channel)
    seen, token = 0, ""
    while token or not seen:
        # What is longer than 4 MiB, clients of other languages do not take.
        page = agent.fleet.ListNodes(fleet_pb2.ListNodesRequest(page_token=token), timeout=20)
        seen, token = seen + len(page.nodes), page.next_page_token
    assert seen == 80


@pytest.mark.parametrize("name", ["n\n2026-11-22 05:00:00,000 ERROR forged", "n\x1b[31m", "n\0"])
def test_no_name_forges_a_line_of_the_log(server: ServerProcess, name: str) -> None:
    agent = FakeAgent(server.channel(), "node-1")
    agent.register()
    evil = FakeAgent(server.channel(), "node-2", name=name)
    profiles = profiles_pb2_grpc.ProfilesStub(agent.channel)  # type: ignore[no-untyped-call]
    place = {"app": name, "node": "node-1"}
    calls: tuple[Callable[[], object], ...] = (
        evil.register,
        lambda: agent.assignments.Bind(assignments_pb2.BindRequest(assignment_id="a", **place)),
        lambda: agent.assignments.Bind(
            assignments_pb2.BindRequest(assignment_id=name, app="sort", node="node-1")
        ),
        lambda: agent.assignments.Reserve(
            assignments_pb2.ReserveRequest(assignment_id="a", **place)
        ),
        lambda: profiles.RegisterApplication(
            profiles_pb2.RegisterApplicationRequest(name=name, identity="0")
        ),
    )
    for call in calls:
        with pytest.raises(grpc.RpcError) as refused:
            call()
        assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    log = server.log.read_text()
    assert not any(line.startswith("2026-11-22 05:00:00,000") for line in log.splitlines())
    assert "\x1b" not in log


def test_a_name_of_two_nodes_is_refused(server: ServerProcess) -> None:
    channel = server.channel()
    for node_id in ("node-1", "node-2"):
        agent = FakeAgent(channel, node_id, name="twin")
        agent.register()
    with pytest.raises(grpc.RpcError) as refused:
        next(agent.fleet.WatchNode(fleet_pb2.WatchNodeRequest(node="twin"), timeout=100))
    assert refused.value.code() == grpc.StatusCode.INVALID_ARGUMENT


def test_the_state_survives_a_restart(server: ServerProcess, agent: FakeAgent) -> None:
    taken = agent.fingerprint()
    agent.report(taken)
    agent.assignments.Bind(
        assignments_pb2.BindRequest(assignment_id="job-1", app="sort", node="node-1")
    )
    before = agent.node()
    server.restart()
    after = agent.node()
    assert after.facts == before.facts
    assert after.last_fingerprint == before.last_fingerprint
    assert after.assignments == before.assignments
    assert after.state == READY
    assert not agent.heartbeat().register_again


def test_http_says_that_it_is_ready(server: ServerProcess) -> None:
    assert server.get("/readyz") == {"ready": True}
    assert eventually(lambda: "kongming_server_nodes{" in server.get("/metrics"))
    # Only states that are counted: a node without an idle reference is ready.
    shown = re.findall(r'kongming_server_nodes{state="(\w+)"}', server.get("/metrics"))
    assert sorted(shown) == ["ready", "silent", "stored", "suspect"]
