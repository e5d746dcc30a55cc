"""Stands between agent and server, passes every call on, and keeps what was acknowledged.

    python benchmarks/soak/witness.py --listen HOST:PORT --server HOST:PORT --log FILE

It is no part of either and is never killed. The ids that an answer of the server calls accepted
are written to FILE before the agent can see them: what stands there the server has promised.
"""

from __future__ import annotations

import argparse
import os
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc

from kongming.rpc.v1 import fleet_pb2

_ANSWERS: dict[str, Callable[[bytes], fleet_pb2.ReportRunsResponse]] = {
    "/kongming.rpc.v1.Fleet/ReportRuns": fleet_pb2.ReportRunsResponse.FromString,
}
"""Calls whose answers promise runs. Fingerprints may be thinned, so that they prove nothing."""

_LONGEST_S = 20.0


class Witness(grpc.GenericRpcHandler):
    """Knows no call by name but those above: bytes come in and go out as they are."""

    def __init__(self, server: str, log: Path) -> None:
        # The server comes back after a kill: it is tried again at once, as an agent would.
        self._options = [
            ("grpc.initial_reconnect_backoff_ms", 50),
            ("grpc.max_reconnect_backoff_ms", 200),
        ]
        self._channel = grpc.insecure_channel(server, options=self._options)
        self._log = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)

    def service(self, details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler:
        method = details.method
        # On the wire a single message is a stream of one.
        return grpc.stream_stream_rpc_method_handler(
            lambda requests, context: self._passed_on(method, requests, context)
        )

    def _passed_on(
        self, method: str, requests: Iterator[bytes], context: grpc.ServicerContext
    ) -> Iterator[bytes]:
        shown = [entry for entry in context.invocation_metadata() if entry[0] == "authorization"]
        call = self._channel.stream_stream(method)(requests, timeout=_LONGEST_S, metadata=shown)
        context.add_callback(call.cancel)
        try:
            for answer in call:
                self._keep(method, answer)
                yield answer
        except grpc.RpcError:
            context.set_trailing_metadata(call.trailing_metadata() or ())
            context.abort(call.code(), call.details() or "")

    def _keep(self, method: str, answer: bytes) -> None:
        if method in _ANSWERS:
            text = "".join(f"{id}\n" for id in _ANSWERS[method](answer).accepted)
            os.write(self._log, text.encode())


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--listen", required=True, metavar="HOST:PORT")
    parser.add_argument("--server", required=True, metavar="HOST:PORT")
    parser.add_argument("--log", required=True, type=Path)
    options = parser.parse_args()
    server = grpc.server(ThreadPoolExecutor(16))
    server.add_generic_rpc_handlers((Witness(options.server, options.log),))
    server.add_insecure_port(options.listen)
    server.start()
    threading.Event().wait()
    return 0


if __name__ == "__main__":
    sys.exit(main())
