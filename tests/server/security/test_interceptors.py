"""What a servicer raises, as the caller meets it; request ids; what is counted and logged."""

from __future__ import annotations

import asyncio
import gc
import logging
from typing import Any

import grpc
import pytest
from kongming_server.calls.request_ids import RequestIds
from kongming_server.configuration.settings import Security
from kongming_server.security import current_call
from kongming_server.security.tokens import issue

from benchmarks.service.echo_server import METHOD, SERVICE, EchoServer, echo_call, echo_request
from kongming.records.errors import (
    InputError,
    KongmingError,
    StaleError,
    StoreError,
    UnknownNameError,
    UntrainedError,
)
from kongming.rpc.errors import from_rpc_error
from kongming.rpc.v1 import predictor_pb2, profiles_pb2
from kongming.store import StoredToken
from tests.server.process import eventually
from tests.server.stand import Stand, call

PREDICT = "/kongming.rpc.v1.Predictor/Predict"
IMPORT = "/kongming.rpc.v1.Profiles/ImportRuns"
WATCH = "/kongming.rpc.v1.Fleet/WatchNode"


def raising(error: BaseException) -> Any:
    async def behaviour(request: Any, context: Any) -> Any:
        raise error

    return behaviour


@pytest.mark.parametrize("name", ["Predict", "ImportRuns", "WatchNode"])
@pytest.mark.parametrize(
    "error",
    [
        InputError("is wrong.", field="app", value="x", allowed="a name", hint="Name it."),
        UnknownNameError("node", "nod", ["node"]),
        UntrainedError("Nothing was trained.", hint="kongming train"),
        StaleError("It is too old."),
        StoreError("The store is away."),
    ],
    ids=lambda error: type(error).__name__,
)
def test_the_caller_meets_what_was_raised(name: str, error: KongmingError) -> None:
    method = {"Predict": PREDICT, "ImportRuns": IMPORT, "WatchNode": WATCH}[name]
    with Stand(behaviours={name: raising(error)}) as stand, stand.channel() as channel:
        with pytest.raises(grpc.RpcError) as met:
            call(channel, method)
        again = from_rpc_error(met.value)
        assert type(again) is type(error)
        assert (again.message, again.hint) == (error.message, error.hint)
        assert getattr(again, "field", None) == getattr(error, "field", None)
        trailers = dict(met.value.trailing_metadata())
        assert trailers["x-request-id"]


@pytest.mark.parametrize("name", ["Predict", "ImportRuns", "WatchNode"])
def test_what_was_not_foreseen_tells_nothing_of_the_inside(
    name: str, caplog: pytest.LogCaptureFixture
) -> None:
    method = {"Predict": PREDICT, "ImportRuns": IMPORT, "WatchNode": WATCH}[name]
    secret = "postgresql://user:secret@host/db"
    behaviours = {name: raising(RuntimeError(secret))}
    with Stand(behaviours=behaviours) as stand, stand.channel() as channel:
        with pytest.raises(grpc.RpcError) as met:
            call(channel, method)
        assert met.value.code() is grpc.StatusCode.INTERNAL
        assert "secret" not in str(met.value.details())
        assert "secret" not in str(met.value.trailing_metadata())
        request_id = dict(met.value.trailing_metadata())["x-request-id"]
        eventually(
            lambda: stand.sample("kongming_server_rpc_total", method=method, code="INTERNAL") == 1
        )
    assert any(request_id in line for line in caplog.messages)


def test_where_the_store_is_no_agent_is_told(caplog: pytest.LogCaptureFixture) -> None:
    failed = StoreError("The store postgresql://kongming@db:5432/kongming failed: disk full.")
    secrets = {role: issue() for role in ("agent", "operator")}
    rows = [
        StoredToken(issued.id, role, issued.digest, created_at=0.0)
        for role, issued in secrets.items()
    ]
    details = {}
    with (
        Stand(
            Security(authenticate="always"),
            tokens=lambda: rows,
            behaviours={"ReportRuns": raising(failed)},
        ) as stand,
        stand.channel() as channel,
    ):
        for role, secret in secrets.items():
            with pytest.raises(grpc.RpcError) as met:
                call(channel, "/kongming.rpc.v1.Fleet/ReportRuns", token=secret.text)
            details[role] = str(met.value.details())
            assert met.value.code() is grpc.StatusCode.UNAVAILABLE
    assert "postgresql" in details["operator"]
    assert "postgresql" not in details["agent"]
    # Logged once: an administrator of the store finds it by the request's id.
    assert sum("postgresql" in line for line in caplog.messages) == 1


def test_an_abort_of_the_servicer_stays_as_it_is() -> None:
    async def abort(request: Any, context: Any) -> Any:
        await context.abort(grpc.StatusCode.ABORTED, "Not now.")

    with Stand(behaviours={"Predict": abort}) as stand, stand.channel() as channel:
        with pytest.raises(grpc.RpcError) as met:
            call(channel, PREDICT)
        assert met.value.code() is grpc.StatusCode.ABORTED
        assert met.value.details() == "Not now."
        eventually(
            lambda: stand.sample("kongming_server_rpc_total", method=PREDICT, code="ABORTED") == 1
        )


def test_a_request_id_comes_back_or_is_generated() -> None:
    seen: list[Any] = []

    async def note(request: Any, context: Any) -> Any:
        seen.append(current_call.get())
        return predictor_pb2.PredictResponse(request_id=request.request_id)

    with Stand(behaviours={"Predict": note}) as stand, stand.channel() as channel:
        given = call(channel, PREDICT, predictor_pb2.PredictRequest(request_id="pod-7"))
        generated = [call(channel, PREDICT).request_id for _ in range(3)]
    assert given.request_id == "pod-7"
    assert len(set(generated)) == 3
    assert all(generated)
    assert [noted.request_id for noted in seen] == ["pod-7", *generated]
    assert {(noted.method, noted.caller.name) for noted in seen} == {(PREDICT, "anybody")}


@pytest.mark.parametrize(
    "given", ["x" * 129, "a\nlevel=ERROR forged", "\x1b[31m", "\u00a1", "\u4e00"]
)
def test_a_request_id_that_would_spoil_a_log_is_refused(given: str) -> None:
    with Stand() as stand, stand.channel() as channel:
        with pytest.raises(grpc.RpcError) as met:
            call(channel, PREDICT, predictor_pb2.PredictRequest(request_id=given))
        error = from_rpc_error(met.value)
        assert isinstance(error, InputError)
        assert error.field == "request_id"
        assert not stand.calls


@pytest.mark.parametrize("method", [PREDICT, WATCH, IMPORT])
def test_bytes_that_are_no_message_are_the_callers_fault(method: str) -> None:
    with Stand() as stand, stand.channel() as channel:
        garbage = b"\xff\xff"
        send = {
            PREDICT: lambda: channel.unary_unary(method)(garbage, timeout=60),
            WATCH: lambda: list(channel.unary_stream(method)(garbage, timeout=60)),
            IMPORT: lambda: channel.stream_unary(method)(iter([garbage]), timeout=60),
        }[method]
        with pytest.raises(grpc.RpcError) as met:
            send()
        assert met.value.code() is grpc.StatusCode.INVALID_ARGUMENT
        error = from_rpc_error(met.value)
        assert isinstance(error, InputError)
        assert error.field == "message"
        assert not stand.calls


def test_the_log_has_the_request_id(caplog: pytest.LogCaptureFixture) -> None:
    log = logging.getLogger("tests.request_ids")
    ids = RequestIds()
    log.addFilter(ids)

    async def note(request: Any, context: Any) -> Any:
        log.warning("in the call")
        await asyncio.to_thread(log.warning, "in a thread of it")
        return predictor_pb2.PredictResponse()

    with Stand(behaviours={"Predict": note}) as stand, stand.channel() as channel:
        call(channel, PREDICT, predictor_pb2.PredictRequest(request_id="pod-7"))
        log.warning("outside")
    log.removeFilter(ids)
    noted = {r.message: r.request_id for r in caplog.records if r.name == log.name}
    assert noted == {"in the call": "pod-7", "in a thread of it": "pod-7", "outside": "-"}


def test_calls_are_counted_with_their_time() -> None:
    with Stand() as stand, stand.channel() as channel:
        for _ in range(3):
            call(channel, PREDICT)
        call(channel, IMPORT, profiles_pb2.ImportRunsRequest())
        assert stand.sample("kongming_server_rpc_total", method=PREDICT, code="OK") == 3
        assert stand.sample("kongming_server_rpc_seconds_count", method=PREDICT) == 3
        assert stand.sample("kongming_server_rpc_seconds_count", method=IMPORT) == 1


def test_a_method_that_nobody_serves_is_not_remembered() -> None:
    with Stand() as stand, stand.channel() as channel:
        for n in range(5):
            with pytest.raises(grpc.RpcError) as met:
                channel.unary_unary(f"/kongming.rpc.v1.Predictor/Invented{n}")(b"", timeout=60)
            assert met.value.code() is grpc.StatusCode.UNIMPLEMENTED
        assert not any(
            "Invented" in str(sample.labels)
            for family in stand.metrics.registry.collect()
            for sample in family.samples
        )


@pytest.mark.thorough
def test_the_echo_is_served_by_the_benchmarks_alone() -> None:
    async def answered(address: str) -> bytes:
        async with grpc.aio.insecure_channel(address) as channel:
            response = await echo_call(channel)(echo_request(b"padding", 7), timeout=100)
        return bytes(response.value)

    with EchoServer() as echo:
        assert asyncio.run(answered(echo.address)) == bytes(7)
    with Stand() as stand, stand.channel() as channel:
        with pytest.raises(grpc.RpcError) as met:
            channel.unary_unary(f"/{SERVICE}/{METHOD}")(b"", timeout=60)
        assert met.value.code() is grpc.StatusCode.UNIMPLEMENTED


def test_a_refused_call_is_freed_without_a_collection_of_garbage() -> None:
    """With its headers: many of them reach an older generation while they are made."""

    def contexts() -> int:
        return sum(type(each).__name__ == "_ServicerContext" for each in gc.get_objects())

    with (
        Stand(behaviours={"Predict": raising(InputError("no"))}) as stand,
        stand.channel() as channel,
    ):
        gc.collect()
        gc.disable()
        try:
            before = contexts()
            for _ in range(20):
                with pytest.raises(grpc.RpcError):
                    call(channel, PREDICT)
            # The last may not have ended.
            eventually(lambda: contexts() - before <= 1, 20.0)
        finally:
            gc.enable()
