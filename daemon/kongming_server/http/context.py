"""What a servicer may ask of a call that came over HTTP."""

from __future__ import annotations

import asyncio

from aiohttp import web

__all__ = ["HttpContext"]


class HttpContext:
    """The few methods of grpc.aio.ServicerContext that a translation needs.

    ``deadline``: time of the event loop at which the call is given up, or None.
    """

    def __init__(self, request: web.Request, deadline: float | None) -> None:
        self._request = request
        self._deadline = deadline

    def peer(self) -> str:
        return f"http:{self._request.remote or ''}"

    def time_remaining(self) -> float | None:
        """Seconds."""
        if self._deadline is None:
            return None
        return max(self._deadline - asyncio.get_running_loop().time(), 0.0)

    def invocation_metadata(self) -> tuple[tuple[str, str], ...]:
        """The headers, without what tells who calls."""
        return tuple(
            (name.lower(), value)
            for name, value in self._request.headers.items()
            if name.lower() not in ("authorization", "cookie")
        )
