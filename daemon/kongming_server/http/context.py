"""Answers to what a servicer may ask of a call that came over HTTP."""

from __future__ import annotations

from aiohttp import web

__all__ = ["HttpContext"]


class HttpContext:
    """The few methods of grpc.aio.ServicerContext that a translation needs."""

    def __init__(self, request: web.Request) -> None:
        self._request = request

    def peer(self) -> str:
        return f"http:{self._request.remote or ''}"

    def invocation_metadata(self) -> tuple[tuple[str, str], ...]:
        """The headers, without what tells who calls."""
        return tuple(
            (name.lower(), value)
            for name, value in self._request.headers.items()
            if name.lower() not in ("authorization", "cookie")
        )
