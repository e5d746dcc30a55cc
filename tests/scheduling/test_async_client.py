"""The asyncio client: pages, pauses after failures, access that is renewed."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import grpc
import pytest
from kongming_scheduling import async_client
from kongming_scheduling.async_client import AsyncClient, ResidentSlowdown

from kongming.records.errors import AccessError, UnavailableError
from kongming.records.questions import Question
from kongming.rpc import calls
from kongming.rpc.channel import Connection, connection_from_settings
from kongming.rpc.client import RemoteService
from kongming.rpc.v1 import assignments_pb2, fleet_pb2, predictor_pb2
from tests.server.stand import Behaviour, Stand


def play(
    scenario: Callable[[AsyncClient], Awaitable[Any]],
    connect: Callable[[], Connection],
    **options: Any,
) -> list[tuple[str, bool]]:
    """Run a scenario; returns what was observed: (method, whether it succeeded)."""
    observed: list[tuple[str, bool]] = []

    async def run() -> None:
        client = AsyncClient(
            connect,
            options.get("pause_s", 60.0),
            lambda method, seconds: observed.append((method, seconds is not None)),
        )
        try:
            await scenario(client)
        finally:
            await client.close()

    asyncio.run(run())
    return observed


def refusing(code: grpc.StatusCode) -> Behaviour:
    async def abort(request: Any, context: Any) -> Any:
        await context.abort(code, "no")

    return abort


def test_nodes_are_listed_page_by_page_and_those_not_ready_left_out() -> None:
    async def list_nodes(request: Any, context: Any) -> Any:
        start = int(request.page_token or 0)
        response = fleet_pb2.ListNodesResponse()
        for n in range(start, min(start + request.page_size, 5)):
            state = fleet_pb2.NODE_STATE_SILENT if n == 2 else fleet_pb2.NODE_STATE_READY
            node = response.nodes.add(state=state)
            node.facts.id, node.facts.name = f"id-{n}", f"node-{n}"
        if start + request.page_size < 5:
            response.next_page_token = str(start + request.page_size)
        return response

    async def scenario(client: AsyncClient) -> None:
        nodes = await client.ready_nodes(2)
        assert nodes == [(f"id-{n}", f"node-{n}") for n in (0, 1, 3, 4)]
        assert [id_ for id_, _ in await client.all_nodes(2)] == [f"id-{n}" for n in range(5)]

    with Stand(behaviours={"ListNodes": list_nodes}) as stand:
        observed = play(scenario, lambda: Connection(stand.grpc))
    assert observed == [("ListNodes", True)] * 6


def test_slowdowns_of_residents_are_by_assignment_and_none_without_an_answer() -> None:
    async def predict(request: Any, context: Any) -> Any:
        response = predictor_pb2.PredictResponse()
        prediction = response.answers.add().prediction
        prediction.basis = predictor_pb2.BASIS_MODEL
        interval = {"lower": 1.0, "median": 1.2, "upper": 1.5, "level": 0.9}
        prediction.slowdown.CopyFrom(predictor_pb2.Prediction().slowdown.__class__(**interval))
        for uid, now in (("uid-1", 1.1), ("uid-2", 1.2), ("uid-3", 1.2)):
            resident = prediction.residents[uid]
            resident.slowdown_now.CopyFrom(prediction.slowdown)
            resident.slowdown_now.median = now
            resident.slowdown_then.CopyFrom(prediction.slowdown)
        # As slow as before at the least: that it is slowed no further is not known.
        prediction.residents["uid-3"].slowdown_then.at_least = True
        response.answers.add().failure.message = "untrained"
        return response

    async def scenario(client: AsyncClient) -> None:
        questions = [Question("etl", "id-1"), Question("etl", "id-2")]
        assert await client.resident_slowdowns(questions) == [
            {"uid-1": ResidentSlowdown(1.2), "uid-3": ResidentSlowdown(1.2, at_least=True)},
            None,
        ]

    with Stand(behaviours={"Predict": predict}) as stand:
        play(scenario, lambda: Connection(stand.grpc))


@pytest.mark.parametrize(
    ("code", "paused"),
    [
        (grpc.StatusCode.UNAVAILABLE, True),
        (grpc.StatusCode.PERMISSION_DENIED, True),
        (grpc.StatusCode.NOT_FOUND, False),
    ],
)
def test_calls_pause_after_a_failure_that_may_pass(code: grpc.StatusCode, paused: bool) -> None:
    async def scenario(client: AsyncClient) -> None:
        with pytest.raises(Exception, match="no"):
            await client.send(calls.release("uid-1"))
        assert client.paused is paused
        await client.send(calls.list_assignments())
        assert not client.paused

    with Stand(behaviours={"Release": refusing(code)}) as stand:
        observed = play(scenario, lambda: Connection(stand.grpc))
    assert observed == [("Release", False), ("ListAssignments", True)]


def test_a_server_that_is_away_is_unavailable() -> None:
    async def scenario(client: AsyncClient) -> None:
        with pytest.raises(UnavailableError):
            await client.ready_nodes(10)
        assert client.paused

    play(scenario, lambda: Connection("127.0.0.1:1"))


def test_the_token_is_read_again_where_access_was_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(async_client, "_REOPEN_S", -1.0)
    token = tmp_path / "token"
    token.write_text("old")
    headers: list[str] = []

    async def release(request: Any, context: Any) -> Any:
        headers.append(dict(context.invocation_metadata()).get("authorization", ""))
        if headers[-1] != "Bearer new":
            await context.abort(grpc.StatusCode.UNAUTHENTICATED, "renew it")
        return assignments_pb2.ReleaseResponse()

    class Settings:
        address, ca, cert, key, token_file = "", "", "", "", str(token)

    async def scenario(client: AsyncClient) -> None:
        with pytest.raises(AccessError):
            await client.send(calls.release("uid-1"))
        token.write_text("new")
        await client.send(calls.release("uid-1"))

    with Stand(behaviours={"Release": release}) as stand:
        Settings.address = stand.grpc
        play(scenario, lambda: connection_from_settings(Settings(), 10.0))
    assert headers == ["Bearer old", "Bearer new"]


def test_both_clients_send_the_same_requests() -> None:
    received: list[Any] = []

    async def reserve(request: Any, context: Any) -> Any:
        received.append(request)
        return assignments_pb2.ReserveResponse()

    with Stand(behaviours={"Reserve": reserve}) as stand:
        with RemoteService(Connection(stand.grpc)) as service:
            expected = service.reserve("uid-1", "etl", "node-1", placement="cross-core", ttl_s=5.0)

        async def scenario(client: AsyncClient) -> None:
            call = calls.reserve("uid-1", "etl", "node-1", placement="cross-core", ttl_s=5.0)
            assert await client.send(call) == expected

        play(scenario, lambda: Connection(stand.grpc))
    first, second = received
    assert first == second
