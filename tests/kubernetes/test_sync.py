"""Which assignments of the server ask for another list of all pods."""

from __future__ import annotations

import asyncio
import time
from types import SimpleNamespace
from typing import Any, cast

import pytest
from kongming_extender.extender_config import Assignments
from kongming_extender.metrics import Metrics
from kongming_extender.pod_state import PodState
from kongming_extender.pods import Demand, Pod
from kongming_extender.sync import AssignmentSync

from kongming.records.answers import Assignment
from kongming.records.errors import UnavailableError

UID = "00000000-0000-4000-8000-000000000000"


@pytest.mark.parametrize(("assignment_id", "needed"), [(UID, True), (f"{UID}/7", False)])
def test_a_guess_of_another_extender_asks_for_no_list(assignment_id: str, needed: bool) -> None:
    """It ends by itself, and under load there always is one: lists would never end."""
    listed_at = time.time()
    held = Assignment(assignment_id, "etl", "id-0", 0, None, "reserved", reserved_at=listed_at)

    async def send(call: Any) -> Any:
        return [held]

    async def list_nodes() -> None:
        return None

    rankings = SimpleNamespace(
        list_nodes=list_nodes, node_id={"n0": "id-0"}.get, invalidate=lambda names: None
    )
    client = SimpleNamespace(send=send)
    sync = AssignmentSync(
        PodState(), cast("Any", client), cast("Any", rankings), Assignments(), Metrics()
    )
    sync.nodes_named(["n0"])
    assert sync.relist_needed()
    sync.pods_listed([], listed_at)
    asyncio.run(sync._send_pending())
    assert sync.relist_needed() == needed


def test_what_ended_on_a_node_that_is_not_ready_is_released_too() -> None:
    ids = [UID.replace("4000", f"400{number}") for number in range(3)]
    held = [
        Assignment(id_, "etl", node_id, 0, None, "bound", bound_at=1.0)
        for id_, node_id in zip(ids, ("id-0", "id-1", "elsewhere"), strict=True)
    ]
    released = []

    async def send(call: Any) -> Any:
        if call.method == "Release":
            released.append(call.request.assignment_id)
        return held

    async def list_nodes() -> None:
        return None

    async def all_nodes() -> list[tuple[str, str]]:
        return [("id-0", "n0"), ("id-1", "n1"), ("elsewhere", "node of another cluster")]

    rankings = SimpleNamespace(
        list_nodes=list_nodes,
        all_nodes=all_nodes,
        # n1 is silent.
        node_id={"n0": "id-0"}.get,
        invalidate=lambda names: None,
    )
    sync = AssignmentSync(
        PodState(),
        cast("Any", SimpleNamespace(send=send)),
        cast("Any", rankings),
        Assignments(),
        Metrics(),
    )
    sync.nodes_named(["n0", "n1"])
    sync.pods_listed([], time.time())
    asyncio.run(sync._send_pending())
    assert released == ids[:2]


def test_names_of_nodes_that_the_server_does_not_know_are_forgotten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A user may give a pod any name of a node."""
    monkeypatch.setattr("kongming_extender.sync._MANY_NODES", 10)

    async def send(call: Any) -> Any:
        return []

    async def list_nodes() -> None:
        return None

    async def all_nodes() -> list[tuple[str, str]]:
        return [("id-0", "n0"), ("id-1", "n1")]

    rankings = SimpleNamespace(
        list_nodes=list_nodes, all_nodes=all_nodes, node_id={}.get, invalidate=lambda names: None
    )
    client = SimpleNamespace(send=send)
    sync = AssignmentSync(
        PodState(), cast("Any", client), cast("Any", rankings), Assignments(), Metrics()
    )

    def made_up(number: int) -> Pod:
        return Pod(UID[:-2] + f"{number:02}", "jobs", "etl", Demand("etl"), node=f"x{number}")

    sync.nodes_named(["n0", "n1"])
    sync.relist_needed()
    for number in range(8):
        sync.pod_changed(made_up(number))
    assert not sync.relist_needed()
    sync.pod_changed(made_up(8))
    # All pods are listed again, and then all nodes.
    assert sync.relist_needed()
    sync.pods_listed([], time.time())
    asyncio.run(sync._release_orphans(time.time()))
    assert sync._nodes == {"n0", "n1"}
    sync.nodes_named(["n0", "n1"])
    sync.relist_needed()
    sync.pod_changed(made_up(9))
    assert not sync.relist_needed()


@pytest.mark.parametrize("turns", range(5))
def test_it_ends_where_it_is_cancelled_just_after_a_change(turns: int) -> None:
    async def send(call: Any) -> Any:
        return []

    client = SimpleNamespace(send=send)
    rankings = SimpleNamespace(node_id={}.get, invalidate=lambda names: None)

    async def cancel_after_a_change() -> None:
        sync = AssignmentSync(
            PodState(), cast("Any", client), cast("Any", rankings), Assignments(), Metrics()
        )
        task = asyncio.create_task(sync.run())
        for _ in range(10):
            await asyncio.sleep(0)
        sync._changed.set()
        for _ in range(turns):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait({task}, timeout=30.0)
        assert task.cancelled()

    asyncio.run(cancel_after_a_change())


@pytest.mark.parametrize("paused", [True, False])
def test_a_guess_that_cannot_be_withdrawn_now_is_later(paused: bool) -> None:
    """What holds a pod's place is no reason to judge it without the ranking that there is."""
    away, methods = [True], []

    async def send(call: Any) -> Any:
        methods.append(call.method)
        if away[0]:
            raise UnavailableError("It is away.")
        return []

    client = SimpleNamespace(send=send, paused=paused)
    rankings = SimpleNamespace(node_id={}.get, invalidate=lambda names: None)
    pods = PodState()
    sync = AssignmentSync(
        pods, cast("Any", client), cast("Any", rankings), Assignments(), Metrics()
    )
    guess = pods.guess(Pod(UID, "jobs", "etl-0", Demand("etl")), "n0", time.monotonic() + 60.0)
    assert guess is not None

    async def withdraw() -> None:
        await sync.withdraw_guess(guess.pod.uid)
        assert methods == ([] if paused else ["Release"])
        away[0] = False
        await sync._send_pending()

    asyncio.run(withdraw())
    assert methods[-1] == "Release"
    assert pods.pending() == []
