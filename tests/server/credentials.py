"""Agents and other callers with tokens of their own, for tests."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import grpc

from tests.server.fleet import FakeAgent
from tests.server.process import ServerProcess, eventually
from tests.server.security.test_real_server import token_command


class Shows(grpc.UnaryUnaryClientInterceptor, grpc.StreamUnaryClientInterceptor):
    """Shows a token with every call."""

    def __init__(self, secret: str) -> None:
        self._headers = [("authorization", f"Bearer {secret}")]

    def intercept_unary_unary(self, continuation, details, request):  # type: ignore[no-untyped-def]
        return continuation(details._replace(metadata=self._headers), request)

    def intercept_stream_unary(self, continuation, details, requests):  # type: ignore[no-untyped-def]
        return continuation(details._replace(metadata=self._headers), requests)


def agent_with(
    server: ServerProcess, role: str = "agent", nodes: Sequence[str] = ()
) -> tuple[FakeAgent, str]:
    """An agent of node-1 with a token of its own, and the token's id."""
    named = [part for name in nodes for part in ("--node", name)]
    created = token_command("add", "--role", role, *named, "--store", server.store_url)
    channel = grpc.intercept_channel(server.channel(), Shows(created["token"]))
    agent = FakeAgent(channel)
    eventually(lambda: code_of(agent.heartbeat) is not grpc.StatusCode.UNAUTHENTICATED)
    return agent, created["id"]


def code_of(call: Callable[[], object]) -> grpc.StatusCode:
    try:
        call()
    except grpc.RpcError as error:
        code = error.code()
        assert isinstance(code, grpc.StatusCode)
        return code
    return grpc.StatusCode.OK
