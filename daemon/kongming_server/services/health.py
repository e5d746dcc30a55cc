"""The Health service of gRPC: whether the server answers, to ask for and to watch.

It waits for no watcher, as grpcio-health-checking's own does: that one writes to each watcher under
a lock that a change of state needs, so that one who reads nothing holds up all others, and the end.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import TYPE_CHECKING

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

__all__ = ["HealthService"]

_State = health_pb2.HealthCheckResponse

if TYPE_CHECKING:  # Its types take parameters only for a checker.
    Context = grpc.aio.ServicerContext[object, object]


class HealthService(health_pb2_grpc.HealthServicer):
    """All services are in one state, and so is "", the server as a whole. For one event loop."""

    def __init__(self, services: Sequence[str]) -> None:
        self._services = frozenset(("", *services))
        self._serving = False
        self._ending = False
        self._changed = asyncio.Event()

    def tell(self, *, serving: bool) -> None:
        """Set what is said from now on; nothing changes after ``end``."""
        if not self._ending:
            self._serving = serving
            self._wake()

    def end(self) -> None:
        """Say that nothing is served any more, and let those who watch go."""
        self.tell(serving=False)
        self._ending = True
        self._wake()

    async def Check(
        self, request: health_pb2.HealthCheckRequest, context: Context
    ) -> health_pb2.HealthCheckResponse:
        if request.service not in self._services:
            await context.abort(grpc.StatusCode.NOT_FOUND, "There is no such service.")
        return self._state(request.service)

    async def Watch(
        self, request: health_pb2.HealthCheckRequest, context: Context
    ) -> AsyncIterator[health_pb2.HealthCheckResponse]:
        while True:
            changed, ending = self._changed, self._ending
            yield self._state(request.service)
            if ending:
                return
            # A change during the answer above has set it already.
            await changed.wait()

    def _state(self, service: str) -> health_pb2.HealthCheckResponse:
        if service not in self._services:
            return _State(status=_State.SERVICE_UNKNOWN)
        return _State(status=_State.SERVING if self._serving else _State.NOT_SERVING)

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()
