"""Callers who do not finish what they began, or read no answers: others are not held up."""

from __future__ import annotations

from urllib.request import Request, urlopen

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from kongming.rpc.v1 import predictor_pb2
from tests.server.conftest import StartServer
from tests.server.http2 import Http2
from tests.server.process import ServerProcess, eventually
from tests.server.security.test_real_server import LIST, code_of, token_command

CHECK, WATCH = "/grpc.health.v1.Health/Check", "/grpc.health.v1.Health/Watch"
REFLECTION = "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"
RANK = "/kongming.rpc.v1.Predictor/RankNodes"
HALF_BYTES = 15 << 20


def test_who_watches_health_and_reads_nothing_holds_up_nobody(start_server: StartServer) -> None:
    server = start_server(settings={"security.authenticate": "always", "server.grace_s": 0.5})
    silent = Http2.to(server.grpc, window=0)
    silent.ask(WATCH, b"")
    # The answer's headers: all that it may send by now.
    eventually(lambda: any(frame.stream for frame in silent.read(0.1)))
    health = health_pb2_grpc.HealthStub(server.channel())  # type: ignore[no-untyped-call]
    watch = health.Watch(health_pb2.HealthCheckRequest(), timeout=30)
    states = health_pb2.HealthCheckResponse
    assert next(watch).status == states.SERVING
    named = health_pb2.HealthCheckRequest(service="kongming.rpc.v1.Fleet")
    assert health.Check(named, timeout=30).status == states.SERVING
    unknown = health_pb2.HealthCheckRequest(service="unknown")
    with pytest.raises(grpc.RpcError) as refused:
        health.Check(unknown, timeout=30)
    assert refused.value.code() is grpc.StatusCode.NOT_FOUND
    waiting = health.Watch(unknown, timeout=30)
    assert next(waiting).status == states.SERVICE_UNKNOWN
    waiting.cancel()
    assert server.stop(timeout_s=30) == 0
    # The watcher hears of the end, and its stream ends in order.
    assert [update.status for update in watch] == [states.NOT_SERVING]
    assert watch.code() is grpc.StatusCode.OK
    silent.close()


def _shown(server: ServerProcess, role: str) -> dict[str, str]:
    """The headers of a caller that the server knows by now."""
    secret = token_command("add", "--role", role, "--store", server.store_url)["token"]
    unknown = grpc.StatusCode.UNAUTHENTICATED
    eventually(lambda: code_of(server.channel(), LIST, token=secret) is not unknown)
    return {"authorization": f"Bearer {secret}"}


def test_of_many_unfinished_messages_and_unread_answers_few_are_kept(
    start_server: StartServer,
) -> None:
    server = start_server(
        settings={"security.authenticate": "always", "security.tokens_period_s": 0.05}
    )
    unread = Http2.to(server.grpc, window=0)
    checks = [unread.ask(CHECK, b"") for _ in range(6)]
    # Of a stranger's connection four answers wait to be read.
    eventually(lambda: unread.read(0.1) and unread.ended == set(checks[4:]))
    agent, scheduler = (_shown(server, role) for role in ("agent", "scheduler"))
    slow, message = Http2.to(server.grpc), predictor_pb2.RankNodesRequest(app="unknown")
    content = message.SerializeToString()
    streams = []
    # Of a stranger, of one at several connections, and of who may ask for a stream: of an agent
    # those end that have most still to come.
    for method, headers, most in ((CHECK, {}, 4), (WATCH, {}, 4), (REFLECTION, agent, 16)):
        if headers:
            streams = [slow.call(RANK, scheduler) for _ in range(40)]
            for stream in streams:
                slow.announce(stream, len(content))
        caller = Http2.to(server.grpc)
        begun = [caller.call(method, headers) for _ in range(most + 3)]
        for stream in begun:
            caller.announce(stream, HALF_BYTES)
        eventually(lambda c=caller: c.read(0.1) and len(c.ended) >= 3)  # type: ignore[misc]
        assert caller.ended == set(begun[most:] if headers else begun[:3])
        health = health_pb2_grpc.HealthStub(server.channel())  # type: ignore[no-untyped-call]
        assert health.Check(health_pb2.HealthCheckRequest(), timeout=30).status
        caller.close()
    # What the scheduler began before the agent did was seen to be slow as often.
    for stream in streams:
        slow.finish(stream, content)
    eventually(lambda: slow.read(0.1) and slow.ended == set(streams))
    slow.close()
    with urlopen(
        Request(f"http://{server.http}/metrics", headers=scheduler), timeout=60
    ) as response:
        lines = response.read().decode().splitlines()
    assert 'kongming_server_refused_total{reason="unfinished_messages"} 9.0' in lines
    assert f'kongming_server_rpc_total{{code="OK",method="{RANK}"}} 40.0' in lines
    # By now, or soon, it has been silent for long enough to lose its connection.
    eventually(unread.closed)
    unread.close()


def test_what_asks_for_a_name_has_no_large_message(start_server: StartServer) -> None:
    server = start_server(
        settings={"security.authenticate": "always", "security.tokens_period_s": 0.05}
    )
    health = health_pb2_grpc.HealthStub(server.channel())  # type: ignore[no-untyped-call]
    large = health_pb2.HealthCheckRequest(service="x" * 5000)
    agent = [*_shown(server, "agent").items()]
    reflect = server.channel().stream_stream(REFLECTION)
    # A stream of it would keep it for as long as its caller likes.
    for call in (
        lambda: health.Check(large, timeout=30),
        lambda: next(health.Watch(large)),
        lambda: next(reflect(iter([large.SerializeToString()]), timeout=30, metadata=agent)),
    ):
        with pytest.raises(grpc.RpcError) as refused:
            call()
        assert refused.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
