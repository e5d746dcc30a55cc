"""What the service keeps: assignments, agents, models in service, forecasts, operations, tokens."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import asdict, replace
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kongming_server.quality import backtest

from kongming.records.errors import ConflictError, InputError, UnknownNameError
from kongming.records.resident import Resident
from kongming.store import (
    Store,
    StoredForecast,
    StoredOperation,
    StoredRealised,
    StoredToken,
)


@pytest.fixture
def store(store_url: str) -> Iterator[Store]:
    with Store.open(store_url) as opened:
        yield opened


def assignment(state: str = "reserved", **changes: Any) -> Resident:
    values: dict[str, Any] = {
        "assignment_id": "job-1",
        "app": "sort",
        "node_id": "node-1",
        "domain": 0,
        "placement": "cross-core",
        "state": state,
        "reserved_at": 100.0,
        "expires_at": 160.0,
        "memory_bytes": 1 << 40,
    }
    return Resident(**(values | changes))


def test_a_model_is_rolled_back_to_the_version_before(store: Store) -> None:
    for number in range(3):
        store.put_model("prog", "id", "node-1", "cross-core", {"number": number})
    with pytest.raises(UnknownNameError):
        store.roll_back("prog", "cross-core", 9)
    assert store.roll_back("prog", "cross-core") == 2
    store.promote("prog", "cross-core", 3, "trained")
    store.promote("prog", "cross-core", 1, "trained")
    assert store.roll_back("prog", "cross-core", reason="somebody said so") == 3
    assert store.in_service("prog", "cross-core") == 3
    assert store.promotions("prog", "cross-core")[0].reason == "somebody said so"
    store.put_model("other", "id", "node-1", "cross-core", {})
    with pytest.raises(InputError, match="no earlier version"):
        store.roll_back("other", "cross-core")


def test_an_assignment_goes_through_its_life(store: Store) -> None:
    assert store.assignment("job-1") is None
    reserved = assignment()
    assert store.put_assignment(reserved) == reserved
    bound = replace(reserved, state="bound", bound_at=120.5)
    released = replace(bound, state="released", ended_at=200.25)
    assert store.put_assignment(bound) == bound
    assert store.assignments(active=True) == [bound]
    assert store.put_assignment(released) == released
    assert store.assignment("job-1") == released
    assert store.assignments(active=True) == []
    assert store.assignments(active=False) == [released]


def test_a_decision_that_comes_late_undoes_nothing(store: Store) -> None:
    bound = assignment("bound", bound_at=120.0)
    released = replace(bound, state="released", ended_at=130.0)
    store.put_assignment(assignment())
    store.put_assignment(bound)
    for late in (assignment(), assignment("expired", ended_at=160.0)):
        assert store.put_assignment(late) == bound
    store.put_assignment(released)
    for late in (assignment(), bound, assignment("expired")):
        assert store.put_assignment(late) == released


def test_a_prolonged_reservation_does_not_expire_at_the_older_time(store: Store) -> None:
    prolonged = assignment(expires_at=500.0)
    store.put_assignment(assignment())
    store.put_assignment(prolonged)
    assert store.put_assignment(assignment("expired", expires_at=160.0)) == prolonged
    expired = assignment("expired", expires_at=500.0, ended_at=501.0)
    assert store.put_assignment(expired) == expired
    # Its program started all the same.
    bound = assignment("bound", expires_at=500.0, bound_at=510.0)
    assert store.put_assignment(bound) == bound


def test_an_id_belongs_to_one_application_and_node(store: Store) -> None:
    store.put_assignment(assignment())
    before = store.last_change()
    with pytest.raises(ConflictError, match="sort on node-1"):
        store.put_assignment(assignment(app="gzip"))
    with pytest.raises(ConflictError, match="assignment_id"):
        store.put_assignments([assignment(assignment_id="job-0"), assignment(node_id="node-2")])
    with pytest.raises(InputError, match="state"):
        store.put_assignment(assignment("lost"))
    assert store.assignments() == [assignment()]
    assert store.last_change() == before


def test_assignments_are_filtered_and_newest_first(store: Store) -> None:
    batch = [
        assignment(assignment_id=f"job-{number}", node_id=f"node-{number % 2}", reserved_at=number)
        for number in range(4)
    ]
    assert store.put_assignments(batch) == batch
    assert store.assignments() == batch[::-1]
    assert store.assignments(node_id="node-1", limit=1) == [batch[3]]


STATES = st.sampled_from(["reserved", "bound", "released", "expired"])
RANK = {"reserved": 0, "expired": 1, "bound": 2, "released": 3}


@settings(
    max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(states=st.lists(STATES, min_size=1, max_size=6))
def test_whatever_the_order_a_bound_assignment_is_never_lost(
    store: Store, states: list[str]
) -> None:
    key = f"job-{store.last_change()}"
    held = [store.put_assignment(assignment(state, assignment_id=key)) for state in states]
    ranks = [RANK[stored.state] for stored in held]
    assert all(
        later >= earlier or (earlier, later) == (RANK["expired"], RANK["reserved"])
        for earlier, later in pairwise(ranks)
    )
    if "released" in states:
        assert held[-1].state == "released"
    elif "bound" in states:
        assert held[-1].state == "bound"


def test_agents_and_their_heartbeats(store: Store) -> None:
    store.put_agent("node-2", {"version": "1"}, seen_at=10.0)
    store.put_agent("node-1", {"version": "1"}, seen_at=10.0)
    store.put_agent("node-1", {"version": "2", "allowed_apps": ["sort"]}, seen_at=11.5)
    store.agents_seen({"node-1": 5.0, "node-2": 20.0, "unknown": 30.0})
    seen = {agent.node_id: (agent.document["version"], agent.seen_at) for agent in store.agents()}
    assert seen == {"node-1": ("2", 11.5), "node-2": ("1", 20.0)}
    assert [agent.node_id for agent in store.agents(node_ids=["node-2", "node-9"])] == ["node-2"]


def test_acknowledged_only_rises(store: Store) -> None:
    assert store.acknowledged("node-1") == 0
    for number in (3, 7, 5):
        store.acknowledge("node-1", number)
    assert store.acknowledged("node-1") == 7
    assert store.acknowledged("node-2") == 0


def test_the_newest_model_answers_until_one_is_promoted(store: Store) -> None:
    assert store.in_service("sort", "cross-core") is None
    for _ in range(3):
        store.put_model("sort", "i", "node-1", "cross-core", {})
    store.put_model("gzip", "i", "node-1", "cross-core", {})
    assert store.in_service("sort", "cross-core") == 3
    store.promote("sort", "cross-core", 1, "first")
    store.promote("sort", "cross-core", 2, "better")
    assert store.in_service("sort", "cross-core") == 2
    store.put_model("sort", "i", "node-1", "cross-core", {})
    assert store.models_in_service() == {("sort", "cross-core"): 2, ("gzip", "cross-core"): 1}
    store.delete_model("sort", "cross-core", version=2)
    assert store.in_service("sort", "cross-core") == 1
    promoted = [(p.version, p.reason) for p in store.promotions("sort", "cross-core")]
    assert promoted == [(2, "better"), (1, "first")]
    with pytest.raises(UnknownNameError, match="sort"):
        store.promote("sort", "cross-core", 2)


def test_the_number_of_a_deleted_version_is_not_given_again(store: Store) -> None:
    def put() -> int:
        return store.put_model("sort", "i", "node-1", "cross-core", {})

    for version in (1, 2):
        assert put() == version
        store.promote("sort", "cross-core", version, "trained")
    store.delete_model("sort", "cross-core", version=2)
    assert put() == 3
    # It was not promoted, and its predecessor's promotion is not its own.
    assert store.in_service("sort", "cross-core") == 1
    store.add_forecast(StoredForecast("job-1", "sort", "node-1", "cross-core", 4, 100.0))
    assert put() == 5
    store.add_realised(
        StoredRealised(
            "run-1", "job-1", "sort", "cross-core", "node-1", 6, 150.0, 2.5, 2.0, 3.0, 0.9, 2.0
        )
    )
    assert put() == 7
    assert store.put_model("gzip", "i", "node-1", "cross-core", {}) == 1


def test_forecasts_and_what_came_of_them(store: Store) -> None:
    forecast = StoredForecast("job-1", "sort", "node-1", "cross-core", 2, 100.0, {"median": 2.0})
    store.add_forecast(forecast)
    newer = replace(forecast, made_at=101.0, document={"median": 2.5})
    store.add_forecast(newer)
    assert store.forecast("job-1") == newer
    assert store.forecast("job-2") is None
    realised = StoredRealised(
        "run-1", "job-1", "sort", "cross-core", "node-1", 2, 150.0, 2.5, 2.0, 3.0, 0.9, 2.0
    )
    assert store.add_realised(realised)
    assert not store.add_realised(replace(realised, measured=9.0))
    assert (realised.error_pct, realised.covered) == (25.0, True)
    later = replace(realised, run_id="run-2", ended_at=160.0, measured=4.0)
    other = replace(realised, run_id="run-3", app="gzip", ended_at=170.0)
    for addition in (later, other):
        store.add_realised(addition)
    assert store.realised("sort", "cross-core") == [later, realised]
    assert store.realised(limit=1) == [other]
    assert store.realised_by_node("sort", "cross-core", limit=1) == [later]
    compared = replace(realised, run_id="run-5", ended_at=180.0)
    assert store.realise(compared)
    # The forecast is used up, by whichever run.
    assert store.forecast("job-1") is None
    assert not store.realise(compared)
    assert not store.realise(replace(compared, run_id="run-6"))
    assert store.realised("sort", limit=2) == [compared, later]
    assert not later.covered
    with pytest.raises(InputError, match="measured"):
        store.add_realised(replace(realised, run_id="run-4", measured=0.0))


def test_a_prediction_without_an_end_is_kept_as_such(store: Store) -> None:
    key = ("sort", "cross-core", "node-1", 2)
    slow = StoredRealised("run-1", "job-1", *key, 150.0, 5.0, 4.0, math.inf, 0.9, 14.0)
    few = StoredRealised("run-2", "job-2", *key, 140.0, 50.0, 0.0, 60.0, 0.9, 14.0, "MB/s")
    for realised in (slow, few):
        assert store.add_realised(realised)
    assert store.realised("sort", "cross-core") == [slow, few]
    assert store.realised_by_node("sort", "cross-core", limit=2) == [slow, few]
    # All that leaves the server of them are numbers that JSON has.
    summary = backtest.realised(store.realised())
    assert summary is not None
    assert json.loads(json.dumps(asdict(summary), allow_nan=False))["coverage"] == 1.0


def test_nodes_share_what_there_is_room_for(store: Store) -> None:
    def add(node_id: str, ended_at: float) -> None:
        key = (f"{node_id}-{ended_at:g}", "job", "sort", "cross-core", node_id, 2)
        store.add_realised(StoredRealised(*key, ended_at, 2.5, 2.0, 3.0, 0.9, 2.0))

    for moment in range(3):
        add("node-1", float(moment))
        add("node-2", 0.5 + moment)
    for moment in range(20):
        add("thief", 100.0 + moment)
    newest = store.realised_by_node("sort", "cross-core", limit=7)
    assert [row.run_id for row in newest] == [
        *("thief-119", "thief-118", "thief-117", "node-2-2.5", "node-1-2", "node-2-1.5"),
        "node-1-1",
    ]
    assert {row.node_id for row in store.realised(limit=7)} == {"thief"}


def test_operations_are_kept_as_they_are_now(store: Store) -> None:
    queued = StoredOperation("op-1", "train", "queued", created_at=1.0, document={"apps": ["a"]})
    running = replace(queued, state="running", progress=0.5, started_at=2.0, owner="server-1")
    other = StoredOperation("op-2", "train", "done", 1.0, created_at=3.0, ended_at=4.0)
    for operation in (queued, running, other):
        store.put_operation(operation)
    assert store.operation("op-1") == running
    assert store.operation("op-9") is None
    assert store.operations() == [other, running]
    assert store.operations(states=["queued", "running"]) == [running]
    assert store.operations(limit=1) == [other]
    store.put_operation(replace(queued, id="op-1/cancel", kind="cancel", created_at=5.0))
    assert store.operations(kind="train") == [other, running]
    assert store.operations(ids=["op-1", "op-9"]) == [running]
    assert store.operations(ids=[]) == []


def test_tokens_are_revoked_once(store: Store) -> None:
    token = StoredToken("t1", "agent", "ab" * 32, 10.0, expires_at=20.0, subject="node-1")
    store.add_token(token)
    with pytest.raises(InputError, match="t1"):
        store.add_token(token)
    assert store.tokens() == [token]
    assert store.revoke_token("t1", 15.0)
    assert not store.revoke_token("t1", 16.0)
    assert not store.revoke_token("t2", 16.0)
    assert store.token("t1") == replace(token, revoked_at=15.0)
    assert store.token("t2") is None


def test_what_no_column_can_hold_is_an_input_error(store: Store) -> None:
    with pytest.raises(InputError, match="cannot be kept"):
        store.acknowledge("node-1", 1 << 64)
    with pytest.raises(InputError, match="cannot be kept"):
        store.put_agent("node-1", {"load": float("nan")})
