"""Requests to a real server, over HTTP and gRPC: no answer says that the fault is the server's, and
no traceback is in its log."""

from __future__ import annotations

import http.client
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path

import grpc
from hypothesis import strategies as st

from tests.fuzz.mutations import contents
from tests.fuzz.requests import Request, requests
from tests.fuzz.target import Target
from tests.server.messages import messages
from tests.server.process import ServerProcess
from tests.server.stand import rpcs

FAULTS = (grpc.StatusCode.INTERNAL, grpc.StatusCode.UNKNOWN, grpc.StatusCode.UNAVAILABLE)
SETTINGS = {
    # Limits for callers and nodes must not slow down an hour of inputs from one caller.
    "limits.rate_per_peer": 1e6,
    "quotas.node_bytes": 1 << 40,
    # Nothing is trained: the machine is for what is tried.
    "closed_loop.profile": False,
}


@contextmanager
def server_targets() -> Iterator[Mapping[str, Target]]:
    with tempfile.TemporaryDirectory() as folder:
        server = ServerProcess(Path(folder), settings=SETTINGS)
        server.start()
        try:
            with closing(http.client.HTTPConnection(server.http, timeout=60)) as connection:
                yield _targets(server, connection)
        finally:
            server.close()


def _targets(server: ServerProcess, connection: http.client.HTTPConnection) -> Mapping[str, Target]:
    read = 0
    channel = server.channel()

    def silent() -> None:
        nonlocal read
        with server.log.open("rb") as log:
            log.seek(read)
            new = log.read()
        read += len(new)
        assert b"Traceback" not in new, new[-2000:].decode(errors="replace")

    def ask(request: Request) -> None:
        try:
            headers = {"Content-Type": "application/json"} | request.headers
            connection.request("POST", request.path, request.body, headers)
            answer = connection.getresponse()
            text = answer.read()
        except (OSError, http.client.HTTPException):
            # It may close a connection without HTTP; the next request shows that it still runs.
            connection.close()
        else:
            # Where headers promise another body, the wait for it ends.
            assert answer.status < 500 or answer.status == 504, (answer.status, text[:300])
        silent()

    def call(drawn: tuple[str, bytes]) -> None:
        method, content = drawn
        answers = channel.stream_stream(method)(iter([content]), timeout=10)
        code, details = grpc.StatusCode.OK, ""
        try:
            # A stream of a node or an operation that is there has no end.
            for _ in zip(range(2), answers, strict=False):
                pass
        except grpc.RpcError as error:
            code, details = error.code(), error.details()
        finally:
            answers.cancel()
        assert code not in FAULTS, (code, details)
        silent()

    return {"http": Target(requests, ask), "grpc": Target(_calls, call)}


def _calls() -> st.SearchStrategy[tuple[str, bytes]]:
    """Any message of any method, whole or damaged."""

    def drawn(method: str) -> st.SearchStrategy[tuple[str, bytes]]:
        encoded = messages(rpcs()[method].input_type).map(
            lambda message: message.SerializeToString()
        )
        return st.tuples(st.just(method), encoded | encoded.flatmap(lambda raw: contents([raw])))

    return st.sampled_from(sorted(rpcs())).flatmap(drawn)
