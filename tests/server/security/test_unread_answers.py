"""Callers who read no answers, without a token, hold up neither others nor the server's end."""

from __future__ import annotations

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from tests.server.conftest import StartServer
from tests.server.http2 import Http2
from tests.server.process import eventually

WATCH = "/grpc.health.v1.Health/Watch"


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
    # It is told of the end, and let go.
    assert [one.status for one in watch] == [states.NOT_SERVING]
    assert watch.code() is grpc.StatusCode.OK
    silent.close()
