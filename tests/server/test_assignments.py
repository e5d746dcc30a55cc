"""Reservations on a real server: on disk before they are answered, and harmless to repeat."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import pytest

from kongming.rpc import value_codec as values
from kongming.rpc.v1 import assignments_pb2 as pb
from kongming.store import Store
from tests.server.conftest import StartServer
from tests.server.fleet import FakeAgent
from tests.server.process import ServerProcess, eventually

RESERVED, BOUND, RELEASED, EXPIRED = (
    pb.ASSIGNMENT_STATE_RESERVED,
    pb.ASSIGNMENT_STATE_BOUND,
    pb.ASSIGNMENT_STATE_RELEASED,
    pb.ASSIGNMENT_STATE_EXPIRED,
)


class Scheduler:
    """What a scheduler does, one call a line."""

    def __init__(self, channel: grpc.Channel) -> None:
        self._stub = FakeAgent(channel).assignments

    def reserve(self, assignment_id: str = "job-1", **fields: Any) -> pb.Assignment:
        given = {"app": "sort", "node": "node-1"} | fields
        request = pb.ReserveRequest(assignment_id=assignment_id, **given)
        return self._stub.Reserve(request, timeout=100).assignment

    def bind(self, assignment_id: str = "job-1", **fields: Any) -> pb.Assignment:
        request = pb.BindRequest(assignment_id=assignment_id, **fields)
        return self._stub.Bind(request, timeout=100).assignment

    def release(self, assignment_id: str = "job-1", **fields: Any) -> pb.Assignment:
        request = pb.ReleaseRequest(assignment_id=assignment_id, **fields)
        return self._stub.Release(request, timeout=100).assignment

    def listed(self, **fields: Any) -> list[tuple[str, int]]:
        answer = self._stub.ListAssignments(pb.ListAssignmentsRequest(**fields), timeout=100)
        return [(assignment.assignment_id, assignment.state) for assignment in answer.assignments]


@pytest.fixture
def scheduler(server: ServerProcess) -> Scheduler:
    channel = server.channel()
    FakeAgent(channel).register()
    return Scheduler(channel)


def refused(call: Any, *args: Any, **fields: Any) -> grpc.StatusCode:
    with pytest.raises(grpc.RpcError) as error:
        call(*args, **fields)
    code = error.value.code()
    assert isinstance(code, grpc.StatusCode)
    return code


def test_an_assignment_goes_from_reserved_to_bound_to_released(scheduler: Scheduler) -> None:
    reserved = scheduler.reserve(memory_bytes=1 << 30)
    assert reserved.state == RESERVED
    assert reserved.node_id == "node-1"
    assert reserved.HasField("expires_at")
    assert scheduler.bind().state == BOUND
    assert scheduler.listed() == [("job-1", BOUND)]
    assert scheduler.release().state == RELEASED
    assert scheduler.listed() == []
    assert scheduler.listed(ended=True) == [("job-1", RELEASED)]


def test_repeating_a_request_answers_what_there_is(scheduler: Scheduler) -> None:
    first = scheduler.reserve()
    assert scheduler.reserve() == first
    bound = scheduler.bind()
    assert scheduler.bind() == bound
    assert scheduler.reserve() == bound
    released = scheduler.release()
    assert scheduler.release() == released
    assert scheduler.bind() == released


def test_one_id_is_one_assignment(server: ServerProcess, scheduler: Scheduler) -> None:
    FakeAgent(server.channel(), "node-2").register()
    scheduler.reserve()
    assert refused(scheduler.reserve, node="node-2") == grpc.StatusCode.ALREADY_EXISTS
    assert refused(scheduler.reserve, app="scan") == grpc.StatusCode.ALREADY_EXISTS
    assert refused(scheduler.bind, app="scan") == grpc.StatusCode.ALREADY_EXISTS


def test_what_is_wrong_is_refused(scheduler: Scheduler) -> None:
    assert refused(scheduler.reserve, node="nowhere") == grpc.StatusCode.NOT_FOUND
    assert refused(scheduler.reserve, "") == grpc.StatusCode.INVALID_ARGUMENT
    assert refused(scheduler.reserve, app="") == grpc.StatusCode.INVALID_ARGUMENT
    assert refused(scheduler.reserve, domain=7) == grpc.StatusCode.INVALID_ARGUMENT
    assert refused(scheduler.reserve, memory_bytes=-1) == grpc.StatusCode.INVALID_ARGUMENT
    for ttl_s in (0.0, -1.0, 1e9):
        ttl = values.duration(ttl_s)
        assert refused(scheduler.reserve, ttl=ttl) == grpc.StatusCode.INVALID_ARGUMENT
    assert refused(scheduler.bind, "unknown") == grpc.StatusCode.NOT_FOUND
    assert refused(scheduler.release, "unknown") == grpc.StatusCode.NOT_FOUND
    assert scheduler.listed(ended=True) == []


def test_what_was_never_reserved_can_be_bound(scheduler: Scheduler) -> None:
    assert scheduler.bind("job-9", app="sort", node="node-1").state == BOUND


def test_a_start_that_lies_ahead_is_now(scheduler: Scheduler) -> None:
    scheduler.reserve()
    bound = scheduler.bind(started_at=values.timestamp("2999-01-01T00:00:00Z"))
    assert bound.bound_at.ToSeconds() < values.timestamp("2900-01-01T00:00:00Z").ToSeconds()


def test_a_reservation_ends_by_itself(server: ServerProcess, scheduler: Scheduler) -> None:
    scheduler.reserve(ttl=values.duration(0.3))
    eventually(lambda: scheduler.listed() == [])

    def on_disk() -> bool:
        with Store.open(server.store_url) as store:
            held = store.assignment("job-1")
        return held is not None and held.state == "expired"

    eventually(on_disk)
    # It runs, whatever was agreed.
    assert scheduler.bind().state == BOUND


def test_a_reservation_that_ended_while_the_server_was_away_has_ended(
    server: ServerProcess, scheduler: Scheduler
) -> None:
    scheduler.reserve(ttl=values.duration(0.2))
    scheduler.reserve("job-2", ttl=values.duration(600))
    server.kill()
    server.start()
    eventually(lambda: scheduler.listed() == [("job-2", RESERVED)])


def test_what_was_answered_survives_a_kill(server: ServerProcess, scheduler: Scheduler) -> None:
    scheduler.reserve("a")
    scheduler.reserve("b")
    scheduler.bind("b")
    scheduler.reserve("c")
    scheduler.release("c")
    server.kill()
    server.start()
    assert sorted(scheduler.listed()) == [("a", RESERVED), ("b", BOUND)]
    assert scheduler.release("c").state == RELEASED


def test_requests_for_one_id_at_the_same_time_agree(scheduler: Scheduler) -> None:
    with ThreadPoolExecutor(8) as pool:
        reserved = list(pool.map(lambda _: scheduler.reserve(), range(24)))
    assert all(assignment == reserved[0] for assignment in reserved)
    with ThreadPoolExecutor(8) as pool:
        calls = [scheduler.bind, scheduler.release] * 8
        list(pool.map(lambda call: call(), calls))
    assert scheduler.listed() == []


def test_two_servers_on_one_store_agree(start_server: StartServer, postgres_url: str) -> None:
    first_server = start_server(store_url=postgres_url)
    channel = first_server.channel()
    FakeAgent(channel).register()
    scheduler = Scheduler(channel)
    scheduler.reserve()
    # What it knew when it started and what it must ask the store for.
    second_server = start_server(store_url=postgres_url)
    second = Scheduler(second_server.channel())
    assert second.bind().state == BOUND
    scheduler.bind("late", app="sort", node="node-1")
    assert second.release("late").state == RELEASED
    # The first server may not have heard of it yet: then it answers from memory, and keeps nothing.
    scheduler.bind("late")
    assert ("late", RELEASED) in scheduler.listed(ended=True)
    eventually(lambda: scheduler.bind("late").state == RELEASED)
