"""Client of a server over asyncio, with a pause after each failure."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence
from typing import NamedTuple

import grpc
import grpc.aio

from kongming.records.errors import (
    AccessError,
    KongmingError,
    OverloadedError,
    StoreError,
    UnavailableError,
)
from kongming.records.questions import Question
from kongming.rpc import calls
from kongming.rpc.calls import Call, Result, Stubs
from kongming.rpc.channel import Connection
from kongming.rpc.errors import from_rpc_error
from kongming.rpc.v1 import fleet_pb2

TRANSIENT = (UnavailableError, OverloadedError, StoreError, TimeoutError)
"""Errors after which the same call may soon succeed."""


class ResidentSlowdown(NamedTuple):
    """The median slowdown that a resident would have; ``at_least``: or more, how much is not
    known."""

    median: float
    at_least: bool = False


_REOPEN_S = 5.0
"""Minimum seconds between new reads of token and certificates after access was refused."""


class AsyncClient:
    """Every method raises KongmingError, or TimeoutError by the caller's own deadline.

    ``connect`` reads token and certificates. ``observe`` is called after each call with its method
    and its seconds, None for a call that failed.
    """

    def __init__(
        self,
        connect: Callable[[], Connection],
        pause_s: float,
        observe: Callable[[str, float | None], None] = lambda method, seconds: None,
    ) -> None:
        self._connect = connect
        self._connection = connect()
        self._pause_s = pause_s
        self._observe = observe
        self._channel: grpc.aio.Channel | None = None
        self._stubs: Stubs | None = None
        self._opened_at = 0.0
        self._paused_until = 0.0
        self._closing: set[asyncio.Task[None]] = set()

    @property
    def paused(self) -> bool:
        """Return whether the last call failed too recently to try again."""
        return time.monotonic() < self._paused_until

    @property
    def away(self) -> bool:
        """Return whether the last call failed, however long ago."""
        return self._paused_until > 0.0

    async def close(self) -> None:
        if self._channel is not None:
            await self._channel.close()

    async def send(self, call: Call[Result]) -> Result:
        begun = time.perf_counter()
        timeout_s = self._connection.timeout_s
        try:
            response = await self._open().method(call)(call.request, timeout=timeout_s)
        except grpc.aio.AioRpcError as error:
            raised = from_rpc_error(error, self._connection.target)
            self._fail(call.method, raised)
            raise raised from error
        except asyncio.CancelledError:
            # The caller's deadline was the shorter one.
            if time.perf_counter() - begun >= 0.9 * timeout_s:
                self._fail(call.method, UnavailableError("The server did not answer in time."))
            raise
        self._paused_until = 0.0
        self._observe(call.method, time.perf_counter() - begun)
        return call.decode(response)

    async def ready_nodes(self, page_size: int) -> list[tuple[str, str]]:
        """Return the id and the name of every ready node."""
        return [
            (node.facts.id, node.facts.name)
            async for node in self._nodes(page_size)
            if node.state == fleet_pb2.NODE_STATE_READY
        ]

    async def all_nodes(self, page_size: int) -> list[tuple[str, str]]:
        """Return the id and the name of every node, in whatever state."""
        return [(node.facts.id, node.facts.name) async for node in self._nodes(page_size)]

    async def _nodes(self, page_size: int) -> AsyncIterator[fleet_pb2.Node]:
        page_token = ""
        while True:
            page = await self.send(calls.list_nodes(page_token, page_size))
            for node in page.nodes:
                yield node
            page_token = page.next_page_token
            if not page_token:
                return

    async def resident_slowdowns(
        self, questions: Sequence[Question]
    ) -> list[dict[str, ResidentSlowdown] | None]:
        """Return for each question the slowdown of each resident that the newcomer would, or may,
        slow, by assignment id; None without an answer."""
        return [
            None
            if isinstance(answer, KongmingError)
            else {
                assignment_id: ResidentSlowdown(
                    impact.slowdown_then.median, impact.slowdown_then.at_least
                )
                for assignment_id, impact in answer.residents.items()
                if impact.slowdown_then.at_least
                or impact.slowdown_then.median > impact.slowdown_now.median
            }
            for answer in await self.send(calls.predict(questions))
        ]

    def _fail(self, method: str, error: KongmingError) -> None:
        self._observe(method, None)
        if isinstance(error, (*TRANSIENT, AccessError)):
            self._paused_until = time.monotonic() + self._pause_s
        if isinstance(error, AccessError) and time.monotonic() - self._opened_at > _REOPEN_S:
            old, self._channel, self._stubs = self._channel, None, None
            if old is not None:
                task = asyncio.get_running_loop().create_task(old.close(1.0))
                self._closing.add(task)
                task.add_done_callback(self._closing.discard)

    def _open(self) -> Stubs:
        if self._stubs is None:
            if self._opened_at:
                self._connection = self._connect()
            self._channel = self._connection.open_aio()
            self._stubs = Stubs(self._channel)
            self._opened_at = time.monotonic()
        return self._stubs
