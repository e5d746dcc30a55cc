"""A gRPC server that only echoes, in a process of its own: what a call costs that does nothing.

It is a grpc.aio server with the options of the production server, and without its interceptors.

    python -m benchmarks.service.echo_server     # prints its address, serves until stdin is closed
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from typing import Any, Self

import grpc
from google.protobuf.wrappers_pb2 import BytesValue
from kongming_server.calls.interceptors import server_options
from kongming_server.configuration.limits import Limits

from tests.server.process import ROOT, python_path

SERVICE, METHOD = "kongming.benchmark.Echo", "Echo"
_LENGTH_BYTES = 4
_payload = bytes(1 << 20)


class EchoServer:
    """The echo server as a context manager; ``address`` and ``pid`` are of its process."""

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.service.echo_server"],
            cwd=ROOT,
            env=os.environ | {"PYTHONPATH": python_path()},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdout is not None
        self.address = self._process.stdout.readline().strip()
        self.pid = self._process.pid
        if not self.address:
            self.__exit__()
            raise RuntimeError("The echo server did not start.")
        return self

    def __exit__(self, *error: object) -> None:
        # Its standard input ends, also where this process is killed.
        self._process.communicate()


def echo_call(channel: grpc.aio.Channel) -> Any:
    """The echo of a channel, from BytesValue to BytesValue: the first four bytes of the request
    are the length of the answer, big-endian, 1 MiB at most."""
    return channel.unary_unary(
        f"/{SERVICE}/{METHOD}",
        request_serializer=BytesValue.SerializeToString,
        response_deserializer=BytesValue.FromString,
    )


def echo_request(content: bytes, answer_bytes: int) -> BytesValue:
    """A request of ``content`` that is answered with so many bytes."""
    return BytesValue(value=answer_bytes.to_bytes(_LENGTH_BYTES, "big") + content)


async def _echo(request: BytesValue, context: grpc.aio.ServicerContext[Any, Any]) -> BytesValue:
    return BytesValue(value=_payload[: int.from_bytes(request.value[:_LENGTH_BYTES], "big")])


async def serve() -> None:
    server = grpc.aio.server(options=server_options(Limits()))
    handler = grpc.unary_unary_rpc_method_handler(
        _echo,
        request_deserializer=BytesValue.FromString,
        response_serializer=BytesValue.SerializeToString,
    )
    server.add_generic_rpc_handlers(
        (grpc.method_handlers_generic_handler(SERVICE, {METHOD: handler}),)
    )
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    sys.stdout.write(f"127.0.0.1:{port}\n")
    sys.stdout.flush()
    await asyncio.to_thread(sys.stdin.read)
    await server.stop(None)


if __name__ == "__main__":
    asyncio.run(serve())
