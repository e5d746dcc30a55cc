"""What one caller may take, and all of them together."""

from __future__ import annotations

import asyncio
import http.client
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import grpc
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kongming_server.calls import interceptors
from kongming_server.configuration.limits import Limits
from kongming_server.configuration.settings import Security
from kongming_server.monitoring.metrics import Metrics
from kongming_server.security import Guard, TokenBook
from kongming_server.security.rates import Rates
from kongming_server.security.refusals import MOST_OF_ONE, FailedOftenError, Refusals
from kongming_server.security.tokens import issue

from kongming.records.errors import AccessError, InputError, OverloadedError
from kongming.rpc.errors import from_rpc_error
from kongming.rpc.v1 import fleet_pb2, predictor_pb2
from kongming.store import StoredToken
from tests.server.process import eventually
from tests.server.stand import Stand, call

PREDICT = "/kongming.rpc.v1.Predictor/Predict"
WATCH = "/kongming.rpc.v1.Fleet/WatchNode"


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def guard(clock: Clock, security: Security | None = None, **limits: Any) -> Guard:
    return Guard(
        security or Security(), Limits(**limits), metrics=Metrics(), clock=clock, wall=clock
    )


def overloaded(call_it: Callable[[], object]) -> OverloadedError:
    with pytest.raises(grpc.RpcError) as refused:
        call_it()
    assert refused.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    error = from_rpc_error(refused.value)
    assert isinstance(error, OverloadedError)
    return error


@given(
    st.lists(st.floats(0.0, 2.0), min_size=1, max_size=200), st.floats(0.5, 20.0), st.integers(1, 9)
)
def test_no_peer_gets_more_than_its_rate(pauses: list[float], rate: float, burst: int) -> None:
    rates, now, allowed = Rates(rate, burst), 0.0, 0
    for pause in pauses:
        now += pause
        allowed += rates.take("peer", now) == 0.0
    assert allowed <= burst + rate * sum(pauses) + 1e-6
    assert allowed >= 1


@given(st.floats(0.5, 20.0), st.integers(1, 9))
def test_who_waits_as_told_is_let_in(rate: float, burst: int) -> None:
    rates = Rates(rate, burst)
    while not (wait_s := rates.take("peer", 0.0)):
        pass
    assert rates.take("peer", wait_s * 0.99) > 0.0
    assert rates.take("peer", wait_s * 1.01) == 0.0


def test_peers_do_not_share_a_rate_and_do_not_pile_up() -> None:
    rates = Rates(1.0, 1.0, peers=10)
    assert all(rates.take(f"peer {n}", 0.0) == 0.0 for n in range(1000))
    assert len(rates) == 10


def test_a_clock_that_steps_back_gives_nothing() -> None:
    rates = Rates(1.0, 1.0)
    assert rates.take("peer", 100.0) == 0.0
    assert rates.take("peer", 50.0) > 0.0
    assert rates.take("peer", 50.5) > 0.0


def test_the_rate_is_one_of_the_address_not_of_the_connection() -> None:
    clock = Clock()
    gate = guard(clock, rate_per_peer=1.0, burst=2)
    for port in (1, 2):
        gate.leave(gate.admit(PREDICT, f"ipv4:192.0.2.1:{port}"))
    with pytest.raises(OverloadedError, match="rate_per_peer"):
        gate.admit(PREDICT, "ipv4:192.0.2.1:3")
    gate.leave(gate.admit(PREDICT, "ipv4:192.0.2.2:1"))
    clock.now += 1.1
    gate.leave(gate.admit(PREDICT, "ipv4:192.0.2.1:4"))


def test_a_host_cannot_multiply_by_its_ipv6_addresses() -> None:
    gate = guard(Clock(), rate_per_peer=1.0, burst=1)
    gate.leave(gate.admit(PREDICT, "ipv6:%5B2001:db8:1:2::1%5D:1"))
    with pytest.raises(OverloadedError):
        gate.admit(PREDICT, "ipv6:%5B2001:db8:1:2:ffff::9%5D:1")
    gate.leave(gate.admit(PREDICT, "ipv6:%5B2001:db8:1:3::1%5D:1"))
    # The same host over either family.
    gate.leave(gate.admit(PREDICT, "ipv4:192.0.2.1:1"))
    with pytest.raises(OverloadedError):
        gate.admit(PREDICT, "ipv6:%5B::ffff:192.0.2.1%5D:1")


def test_guessing_tokens_is_slowed_down() -> None:
    clock = Clock()
    gate = guard(clock, Security(authenticate="always"))
    outcomes = []
    for _ in range(150):
        with pytest.raises((AccessError, OverloadedError)) as refused:
            gate.admit(PREDICT, "ipv4:192.0.2.1:1", f"Bearer kongming_{'0' * 12}_{'A' * 43}")
        outcomes.append(type(refused.value))
    assert outcomes == [AccessError] * 100 + [FailedOftenError] * 50
    with pytest.raises(AccessError):  # nobody else is
        gate.admit(PREDICT, "ipv4:192.0.2.2:1")


def test_who_fails_often_hears_of_it_late(monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float] = []
    go_on = asyncio.Event()

    async def sleep(seconds: float) -> None:
        waits.append(seconds)
        await go_on.wait()

    async def scenario() -> None:
        monkeypatch.setattr("kongming_server.security.refusals.asyncio.sleep", sleep)
        refusals, failed = Refusals(2.0, most=2), FailedOftenError("often")
        await refusals.hold(AccessError("once"), "ipv4:192.0.2.1:1")
        assert not waits
        waiting = [
            asyncio.create_task(refusals.hold(failed, f"ipv4:192.0.2.1:{n}")) for n in range(2)
        ]
        while len(waits) < 2:
            await asyncio.wait(waiting, timeout=0.01)
        await refusals.hold(failed, "ipv4:192.0.2.1:3")  # A third has no room to wait.
        assert len(waits) == 2
        go_on.set()
        await asyncio.gather(*waiting)
        await refusals.hold(failed, "ipv4:192.0.2.1:3")

    asyncio.run(scenario())
    assert len(waits) == 3
    assert all(1.0 <= seconds <= 3.0 for seconds in waits)


def test_a_stranger_waits_over_both_protocols() -> None:
    with Stand(Security(authenticate="always"), clock=Clock()) as stand, stand.channel() as channel:
        stand.guard.refusals = Refusals(0.3)

        def by_grpc(timeout: float = 10.0) -> None:
            with pytest.raises(grpc.RpcError):
                call(channel, PREDICT, timeout=timeout)

        def by_http() -> None:
            with pytest.raises(urllib.error.HTTPError):
                urllib.request.urlopen(f"http://{stand.http}/watcher", timeout=20)

        for _ in range(100):
            by_grpc()

        def with_a_body() -> None:
            request = urllib.request.Request(
                f"http://{stand.http}/v1/predict",
                data=b"{}",
                headers={"Content-Type": "application/json"},
            )
            with pytest.raises(urllib.error.HTTPError):
                urllib.request.urlopen(request, timeout=20)

        for ask, method in (
            (by_grpc, PREDICT),
            (by_http, "GET /watcher"),
            (with_a_body, "POST /v1/predict"),
        ):
            name = "kongming_server_rpc_seconds_sum"
            before, begun = stand.sample(name, method=method), time.perf_counter()
            ask()
            took = time.perf_counter() - begun
            assert took >= 0.15
            # The time that a caller is kept waiting is not counted as the server's work.
            assert stand.sample(name, method=method) - before <= took - 0.14

        # A caller that asks without end leaves streams of its connection to others that share it.
        stand.guard.refusals = Refusals(20.0)
        ask = channel.unary_unary(PREDICT)
        held = [ask.future(b"", timeout=60.0) for _ in range(100)]
        eventually(lambda: sum(future.done() for future in held) == 100 - MOST_OF_ONE)
        for future in held:
            future.cancel()

        # It counts as refused, not as cancelled, where the caller does not wait for the answer.
        stand.guard.refusals = Refusals(20.0)
        code = {"method": PREDICT, "code": "RESOURCE_EXHAUSTED"}
        before = stand.sample("kongming_server_rpc_total", **code)
        by_grpc(timeout=2.0)
        eventually(lambda: stand.sample("kongming_server_rpc_total", **code) == before + 1)
        assert not stand.sample("kongming_server_rpc_total", method=PREDICT, code="CANCELLED")


def test_who_asks_what_is_public_or_forbidden_without_end_hears_of_it_late() -> None:
    secret = issue()
    rows = [StoredToken(secret.id, "agent", secret.digest, created_at=0.0)]
    shown = f"Bearer {secret.text}"
    book = TokenBook(lambda: rows)
    book.load()
    gate = Guard(
        Security(authenticate="always"), Limits(), metrics=Metrics(), tokens=book, clock=Clock()
    )

    def outcome(method: str, host: int, authorization: str | None = None) -> type | None:
        try:
            gate.leave(gate.admit(method, f"ipv4:192.0.2.{host}:1", authorization))
        except (AccessError, OverloadedError) as error:
            return type(error)
        return None

    # One token from many addresses.
    outcomes = [outcome(PREDICT, number, shown) for number in range(110)]
    assert outcomes == [AccessError] * 100 + [FailedOftenError] * 10
    assert outcome("/kongming.rpc.v1.Fleet/Report", 1, shown) is None
    outcomes = [outcome("GET /docs", 1) for _ in range(1010)]
    assert outcomes == [None] * 1000 + [FailedOftenError] * 10
    assert outcome("GET /docs", 2) is None


@pytest.mark.parametrize("authenticate", ["always", "auto"])
def test_a_probe_is_answered_whatever_others_of_its_address_ask(authenticate: str) -> None:
    clock = Clock()
    gate = guard(clock, Security(authenticate=authenticate), rate_per_peer=0.001, burst=50)

    def flood(method: str, port: int = 1) -> int:
        """How many of 100 calls on a connection were let in."""
        allowed = 0
        for _ in range(100):
            with suppress(OverloadedError):
                gate.leave(gate.admit(method, f"ipv4:192.0.2.1:{port}"))
                allowed += 1
        return allowed

    assert flood("/grpc.health.v1.Health/Check") == 55
    for port, method in enumerate(("GET /healthz", "GET /readyz", "/grpc.health.v1.Health/Check")):
        # Of each connection a few, and one a second.
        assert flood(method, 2 + port) == 5
        clock.now += 1.0
        assert flood(method, 2 + port) == 1
    assert flood("GET /docs", 9) == 0


@pytest.mark.thorough
def test_a_method_that_nobody_serves_is_counted_as_what_is_public() -> None:
    with Stand(Security(authenticate="always"), clock=Clock()) as stand, stand.channel() as channel:
        stand.guard.refusals = Refusals(0.0)
        codes = []
        for _ in range(1003):
            with pytest.raises(grpc.RpcError) as refused:
                channel.unary_unary("/x/y")(b"", timeout=20)
            codes.append(refused.value.code())
    unknown, refusal = grpc.StatusCode.UNIMPLEMENTED, grpc.StatusCode.RESOURCE_EXHAUSTED
    assert codes == [unknown] * 1000 + [refusal] * 3


def test_two_authorizations_are_a_failure_that_counts() -> None:
    with Stand(Security(authenticate="always"), clock=Clock()) as stand, stand.channel() as channel:
        stand.guard.refusals = Refusals(0.0)
        ask = channel.unary_unary(PREDICT)
        codes = []
        for _ in range(50):
            with pytest.raises(grpc.RpcError) as refused:
                ask(b"", timeout=10, metadata=[("authorization", "Bearer a")] * 2)
            codes.append(refused.value.code())
        assert codes == [grpc.StatusCode.UNAUTHENTICATED] * 50
        statuses = []
        for _ in range(60):
            connection = http.client.HTTPConnection(stand.http, timeout=10)
            connection.putrequest("GET", "/watcher")
            for text in ("Bearer a", "Bearer b"):
                connection.putheader("Authorization", text)
            connection.endheaders()
            statuses.append(connection.getresponse().status)
            connection.close()
        assert statuses == [401] * 50 + [429] * 10


@pytest.mark.parametrize("shown", ["", "Basic abc", "Bearer", "Bearer ", "kongming_1_2"])
def test_no_other_authorization_is_known(shown: str) -> None:
    gate = Guard(Security(authenticate="always"), Limits(), metrics=Metrics(), tokens=TokenBook())
    with pytest.raises(AccessError) as refused:
        gate.admit(PREDICT, "ipv4:192.0.2.1:1", shown)
    assert refused.value.reason == "unauthenticated"


def test_a_message_that_is_too_large_is_refused() -> None:
    with Stand(limits=Limits(message_bytes=4096)) as stand, stand.channel() as channel:
        call(channel, PREDICT, predictor_pb2.PredictRequest(request_id="small"))
        large = predictor_pb2.PredictRequest(
            questions=[predictor_pb2.PredictQuestion(app="x" * 5000)]
        )
        with pytest.raises(grpc.RpcError) as refused:
            call(channel, PREDICT, large)
        assert refused.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert len(stand.calls) == 1


def test_a_message_that_never_arrives_gives_its_place_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interceptors, "BODY_TIMEOUT_S", 0.2)
    go_on = threading.Event()

    def nothing() -> Iterator[bytes]:
        go_on.wait(20)
        yield b""

    with Stand() as stand, stand.channel() as channel:
        with pytest.raises(grpc.RpcError) as ended:
            channel.stream_unary(PREDICT)(nothing(), timeout=20)
        go_on.set()
        assert ended.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
        assert stand.sample("kongming_server_calls_at_work") == 0
        eventually(lambda: stand.guard.calls == 0)
        with pytest.raises(grpc.RpcError) as ended:
            channel.stream_unary(PREDICT)(iter([]), timeout=20)
        assert ended.value.code() is grpc.StatusCode.INVALID_ARGUMENT
        call(channel, PREDICT)


def test_a_batch_that_is_too_large_names_its_field() -> None:
    request = predictor_pb2.PredictRequest(questions=[predictor_pb2.PredictQuestion()] * 4)
    with Stand(limits=Limits(batch=3)) as stand, stand.channel() as channel:
        with pytest.raises(grpc.RpcError) as refused:
            call(channel, PREDICT, request)
        error = from_rpc_error(refused.value)
        assert isinstance(error, InputError)
        assert error.field == "questions"
        del request.questions[0]
        call(channel, PREDICT, request)


def test_a_full_queue_refuses_and_recovers() -> None:
    entered, go_on = threading.Semaphore(0), threading.Event()

    async def slow(request: Any, context: Any) -> Any:
        entered.release()
        await asyncio.to_thread(go_on.wait, 10)
        return predictor_pb2.PredictResponse()

    with (
        Stand(limits=Limits(queue=2), behaviours={"Predict": slow}) as stand,
        stand.channel() as channel,
        ThreadPoolExecutor(2) as callers,
    ):
        held = [callers.submit(call, channel, PREDICT) for _ in range(2)]
        for _ in held:
            assert entered.acquire(timeout=100)
        assert "queue" in overloaded(lambda: call(channel, PREDICT)).message
        assert stand.sample("kongming_server_refused_total", reason="queue") == 1
        assert stand.sample("kongming_server_calls_at_work") == 2
        go_on.set()
        for future in held:
            future.result(60)
        call(channel, PREDICT)
        assert stand.sample("kongming_server_calls_at_work") == 0


def test_a_caller_that_goes_away_leaves_no_trace() -> None:
    entered = threading.Semaphore(0)

    async def forever(request: Any, context: Any) -> Any:
        entered.release()
        await asyncio.sleep(60)

    with Stand(behaviours={"Predict": forever}) as stand, stand.channel() as channel:
        with pytest.raises(grpc.RpcError) as ended:
            call(channel, PREDICT, timeout=0.2)
        assert ended.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
        assert entered.acquire(timeout=100)
        eventually(lambda: stand.sample("kongming_server_calls_at_work") == 0)
        eventually(
            lambda: stand.sample("kongming_server_rpc_total", method=PREDICT, code="CANCELLED") == 1
        )


def test_streams_are_counted_and_given_back() -> None:
    async def wait(request: Any, context: Any) -> Any:
        if request.node == "hold":
            await asyncio.sleep(60)
        return fleet_pb2.WatchNodeResponse()

    limits = Limits(streams_per_peer=2)
    with Stand(limits=limits, behaviours={"WatchNode": wait}) as stand:
        channels = [
            stand.channel(options=[("grpc.use_local_subchannel_pool", 1)]) for _ in range(3)
        ]
        watch = [
            channel.unary_stream(
                WATCH,
                request_serializer=fleet_pb2.WatchNodeRequest.SerializeToString,
                response_deserializer=fleet_pb2.WatchNodeResponse.FromString,
            )
            for channel in channels
        ]
        held = [open_watch(fleet_pb2.WatchNodeRequest(node="hold")) for open_watch in watch[:2]]
        eventually(lambda: stand.sample("kongming_server_streams_open") == 2)
        error = overloaded(lambda: list(watch[2](fleet_pb2.WatchNodeRequest(), timeout=30)))
        assert "streams_per_peer" in error.message
        held[0].cancel()
        eventually(lambda: stand.sample("kongming_server_streams_open") == 1)
        assert len(list(watch[2](fleet_pb2.WatchNodeRequest(), timeout=30))) == 1
        held[1].cancel()
        eventually(lambda: stand.sample("kongming_server_streams_open") == 0)
        for channel in channels:
            channel.close()
