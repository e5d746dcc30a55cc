"""An application at a port: aiohttp's server over a listener of our own."""

from __future__ import annotations

import ssl
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack

from aiohttp import web

from kongming.rpc.connections import Connections
from kongming.rpc.listener import Listener
from kongming_server.http.answers import error_answer

__all__ = ["serve"]

Handler = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]


async def serve(
    app: web.Application,
    undo: AsyncExitStack,
    connections: Connections,
    address: tuple[str, int],
    *,
    tls: ssl.SSLContext | None,
    idle_s: float,
    grace_s: float,
) -> int:
    """Serve ``app`` at a host and port until ``undo`` is unwound, which lets requests under way end
    for ``grace_s``; returns the port.

    Raises:
        OSError: it cannot be listened there.
    """
    runner = web.AppRunner(
        app,
        access_log=None,
        # aiohttp waits for so long twice before it cancels what is at work.
        shutdown_timeout=grace_s / 2,
        keepalive_timeout=idle_s,
        # An encoded body is refused; a library that decodes it fails before it can be.
        auto_decompress=False,
    )
    await runner.setup()
    undo.push_async_callback(runner.cleanup)
    server = runner.server
    assert server is not None
    server.request_handler = _expecting(server.request_handler)
    listener = Listener(server, connections, tls=tls, idle_s=idle_s)
    undo.push_async_callback(listener.close)
    await listener.start(*address)
    return listener.port


def _expecting(inner: Handler) -> Handler:
    """aiohttp looks at the header Expect before any of our own, and repeats it in its answer."""

    async def answer(request: web.BaseRequest) -> web.StreamResponse:
        expected = request.headers.get("Expect", "100-continue")
        if expected.lower() != "100-continue":
            return error_answer(web.HTTPExpectationFailed(text=""))[0]
        return await inner(request)

    return answer
