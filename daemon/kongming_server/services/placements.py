"""The Placements service: a placement is on disk before it is answered."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import grpc

from kongming.errors import InputError, KongmingError, UnknownNameError
from kongming.rpc import records
from kongming.rpc.v1 import placements_pb2, placements_pb2_grpc
from kongming_server.closed_loop import ClosedLoop
from kongming_server.core.placements import PlacementBook, Resident
from kongming_server.core.questions import Forecast, Question
from kongming_server.hub import Hub, resident_of

log = logging.getLogger(__name__)

_STATES = {
    "reserved": placements_pb2.RESERVATION_STATE_RESERVED,
    "bound": placements_pb2.RESERVATION_STATE_BOUND,
    "released": placements_pb2.RESERVATION_STATE_RELEASED,
    "expired": placements_pb2.RESERVATION_STATE_EXPIRED,
}

if TYPE_CHECKING:  # Its types take parameters only for a checker.
    Context = grpc.aio.ServicerContext[object, object]


class PlacementsService(placements_pb2_grpc.PlacementsServicer):
    """Reserve, bind and release; each is harmless to repeat."""

    def __init__(self, hub: Hub, loop: ClosedLoop) -> None:
        self._hub = hub
        self._loop = loop
        # Two requests for one id are decided one after the other.
        self._locks: dict[str, tuple[asyncio.Lock, int]] = {}

    async def Reserve(
        self, request: placements_pb2.ReserveRequest, context: Context
    ) -> placements_pb2.ReserveResponse:
        agent = self._hub.agents.named(request.node)
        domain = _domain(request.domain, agent.domains)
        placement = records.placement_from_message(request.placement)
        ttl_s = self._ttl(request)
        async with self._deciding(request.placement_id) as book:
            resident = book.reserve(
                request.placement_id,
                request.app,
                agent.facts.id,
                self._hub.now(),
                placement=placement,
                domain=domain,
                ttl_s=ttl_s,
                memory_bytes=request.memory_bytes,
            )
            held = await self._kept(resident)
        return placements_pb2.ReserveResponse(reservation=_message(held))

    async def Bind(
        self, request: placements_pb2.BindRequest, context: Context
    ) -> placements_pb2.BindResponse:
        node_id = self._hub.agents.named(request.node).facts.id if request.node else ""
        started_at = records.unix(request.started_at) if request.HasField("started_at") else None
        async with self._deciding(request.placement_id) as book:
            before = book.all(ended=True)
            resident = book.bind(
                request.placement_id,
                self._hub.now(),
                started_at=started_at,
                app=request.app,
                node_id=node_id,
            )
            # Asked before it counts as running there: what was to be expected of it.
            known = before[0] if before else None
            forecast = None
            if known is None or known.state != "bound":
                forecast = self._forecast(resident, reserved=known is not None)
            held = await self._kept(resident)
        if forecast is not None and held.state == "bound":
            await self._remember(held, forecast)
        return placements_pb2.BindResponse(reservation=_message(held))

    async def Release(
        self, request: placements_pb2.ReleaseRequest, context: Context
    ) -> placements_pb2.ReleaseResponse:
        ended_at = records.unix(request.ended_at) if request.HasField("ended_at") else None
        held = await self.release(request.placement_id, ended_at)
        return placements_pb2.ReleaseResponse(reservation=_message(held))

    async def ListPlacements(
        self, request: placements_pb2.ListPlacementsRequest, context: Context
    ) -> placements_pb2.ListPlacementsResponse:
        hub = self._hub
        node_id = hub.agents.named(request.node).facts.id if request.node else None
        if request.ended:
            rows = await hub.stored(lambda: hub.store.placements(node_id=node_id, limit=_MOST))
            found = [resident_of(row) for row in rows]
        else:
            found = hub.book.all(node_id=node_id)
        return placements_pb2.ListPlacementsResponse(placements=map(_message, found))

    async def release(self, placement_id: str, ended_at: float | None) -> Resident:
        """A placement has ended, whoever says so. Raises UnknownNameError and StoreError."""
        async with self._deciding(placement_id) as book:
            resident = book.release(placement_id, self._hub.now(), ended_at=ended_at)
            return await self._kept(resident)

    @asynccontextmanager
    async def _deciding(self, placement_id: str) -> AsyncIterator[PlacementBook]:
        """A book of what is known of this id alone: decided on, then kept, and only then known."""
        lock, waiting = self._locks.get(placement_id, (asyncio.Lock(), 0))
        self._locks[placement_id] = (lock, waiting + 1)
        try:
            async with lock:
                yield PlacementBook(await self._known(placement_id))
        finally:
            lock, waiting = self._locks.pop(placement_id)
            if waiting > 1:
                self._locks[placement_id] = (lock, waiting - 1)

    async def _known(self, placement_id: str) -> list[Resident]:
        hub = self._hub
        try:
            return [hub.book.get(placement_id)]
        except UnknownNameError:
            pass
        if not placement_id:
            raise InputError("is empty.", field="placement_id", allowed="a name")
        # It may have ended long ago, or another server may have taken it a moment ago.
        row = await hub.stored(lambda: hub.store.placement(placement_id))
        return [] if row is None else [resident_of(row)]

    async def _kept(self, resident: Resident) -> Resident:
        """On disk, unless that very state is there already."""
        try:
            if self._hub.book.get(resident.placement_id) == resident:
                return resident
        except UnknownNameError:
            pass
        return await self._hub.keep_placement(resident)

    def _ttl(self, request: placements_pb2.ReserveRequest) -> float:
        settings = self._hub.config.placements
        if not request.HasField("ttl"):
            return settings.reservation_ttl_s
        ttl_s = records.seconds(request.ttl)
        if not 0.0 < ttl_s <= settings.reservation_ttl_max_s:
            raise InputError(
                "is out of range.",
                field="ttl",
                found=ttl_s,
                allowed=f"above 0 s, up to {settings.reservation_ttl_max_s:g} s",
            )
        return ttl_s

    def _forecast(self, resident: Resident, *, reserved: bool) -> Forecast | None:
        """What is predicted for it; None where there is no answer."""
        question = Question(
            app=resident.app,
            node=resident.node_id,
            placement=resident.placement,
            domain=resident.domain,
            resident_id=resident.placement_id if reserved else "",
        )
        try:
            return self._hub.engine.predict(question, self._hub.now())
        except KongmingError as error:
            log.debug("No forecast for %s: %s", resident.placement_id, error)
            return None

    async def _remember(self, resident: Resident, forecast: Forecast) -> None:
        try:
            await self._loop.placed(resident, forecast)
        except KongmingError as error:
            # The placement is on disk, and that is what was asked for.
            log.warning("The forecast of %s was not kept: %s", resident.placement_id, error)


_MOST = 10_000
"""Placements in one answer where ended ones are asked for as well."""


def _domain(domain: int, domains: int) -> int:
    if not 0 <= domain < domains:
        raise InputError(
            "is none of the node's cache domains.",
            field="domain",
            found=domain,
            allowed=f"0 to {domains - 1}",
        )
    return domain


def _message(resident: Resident) -> placements_pb2.Reservation:
    made = placements_pb2.Reservation(
        placement_id=resident.placement_id,
        app=resident.app,
        node_id=resident.node_id,
        domain=resident.domain,
        placement=records.placement_to_message(resident.placement),
        state=_STATES[resident.state],
    )
    for name in ("reserved_at", "bound_at", "ended_at", "expires_at"):
        moment = getattr(resident, name)
        if moment is not None:
            getattr(made, name).CopyFrom(records.timestamp(moment))
    return made
