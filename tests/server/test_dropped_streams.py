"""Clients that go away in the midst of a stream."""

from __future__ import annotations

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from kongming.rpc.v1 import fleet_pb2, fleet_pb2_grpc
from tests.server.conftest import StartServer

DROPPED = 60


def test_streams_whose_clients_are_gone_do_not_end_the_server(start_server: StartServer) -> None:
    server = start_server(settings={"limits.public_streams": DROPPED})
    for at_once in (False, True):
        channel = grpc.insecure_channel(
            server.grpc, options=[("grpc.use_local_subchannel_pool", 1)]
        )
        health, fleet = health_pb2_grpc.HealthStub(channel), fleet_pb2_grpc.FleetStub(channel)
        streams = []
        for number in range(DROPPED):
            if number % 2:
                stream = health.Watch(health_pb2.HealthCheckRequest(), timeout=100)
                next(stream)
            else:
                # Nobody knows this node, so that the stream ends by itself or with its client.
                stream = fleet.WatchNode(fleet_pb2.WatchNodeRequest(node="nobody"), timeout=100)
            streams.append(stream)
            if not at_once:
                stream.cancel()
        # With the connection go the streams that are still open.
        channel.close()
    assert (
        health_pb2_grpc.HealthStub(server.channel())
        .Check(health_pb2.HealthCheckRequest(), timeout=100)
        .status
        == health_pb2.HealthCheckResponse.SERVING
    )
    assert server.stop() == 0
