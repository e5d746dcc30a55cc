"""A unary echo for benchmarks: what a call costs that does nothing. Never registered otherwise."""

from __future__ import annotations

from typing import Any

import grpc
from google.protobuf.wrappers_pb2 import BytesValue

__all__ = ["ECHO", "SETTING", "add_echo"]

SERVICE = "kongming.benchmark.Echo"
ECHO = f"/{SERVICE}/Echo"

SETTING = "KONGMING_BENCHMARK_ECHO"
"""The environment variable that asks for it."""

_LENGTH_BYTES = 4
_payload = bytes(1 << 20)


async def _echo(request: BytesValue, context: grpc.aio.ServicerContext[Any, Any]) -> BytesValue:
    """As many bytes as the first four of the request say, 1 MiB at most."""
    return BytesValue(value=_payload[: int.from_bytes(request.value[:_LENGTH_BYTES], "big")])


def add_echo(server: grpc.aio.Server) -> None:
    """Serve ``ECHO``, from BytesValue to BytesValue, past the gate."""
    handler = grpc.unary_unary_rpc_method_handler(
        _echo,
        request_deserializer=BytesValue.FromString,
        response_serializer=BytesValue.SerializeToString,
    )
    server.add_generic_rpc_handlers(
        (grpc.method_handlers_generic_handler(SERVICE, {"Echo": handler}),)
    )
