"""The Assignments service: an assignment is on disk before the call is answered."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import grpc

from kongming.engine.assignments import AssignmentBook
from kongming.records.answers import Assignment, Forecast
from kongming.records.errors import AccessError, InputError, KongmingError, UnknownNameError
from kongming.records.questions import Question
from kongming.records.resident import Resident
from kongming.rpc import value_codec as values
from kongming.rpc.message_codec import to_message
from kongming.rpc.v1 import assignments_pb2, assignments_pb2_grpc
from kongming_server.ingest.decode import plain_name
from kongming_server.nodes.ownership import calling_agent
from kongming_server.nodes.registry import Agent, aliases
from kongming_server.quality.closed_loop import ClosedLoop
from kongming_server.running.turns import Turns
from kongming_server.services.assignment_list import list_assignments
from kongming_server.services.node_access import NodeAccess
from kongming_server.state import SharedState

log = logging.getLogger(__name__)

if TYPE_CHECKING:  # Its types take parameters only for a checker.
    Context = grpc.aio.ServicerContext[object, object]


class AssignmentsService(assignments_pb2_grpc.AssignmentsServicer):
    """Reserve, bind and release; each is harmless to repeat."""

    def __init__(self, state: SharedState, loop: ClosedLoop, access: NodeAccess) -> None:
        self._state = state
        self._loop = loop
        self._access = access
        # Two requests for one id are decided one after the other.
        self._turns = Turns()

    async def Reserve(
        self, request: assignments_pb2.ReserveRequest, context: Context
    ) -> assignments_pb2.ReserveResponse:
        agent = self._state.agents.named(request.node)
        domain = _domain(request.domain, agent.domains)
        placement = values.placement_from_message(request.placement)
        ttl_s = self._ttl(request)
        if request.app:
            plain_name(request.app, "app")
        async with self._deciding(request.assignment_id) as book:
            resident = book.reserve(
                request.assignment_id,
                request.app,
                agent.facts.id,
                self._state.now(),
                placement=placement,
                domain=domain,
                ttl_s=ttl_s,
                memory_bytes=request.memory_bytes,
            )
            held = await self._persisted(resident)
        return assignments_pb2.ReserveResponse(assignment=_message(held))

    async def Bind(
        self, request: assignments_pb2.BindRequest, context: Context
    ) -> assignments_pb2.BindResponse:
        agent = self._state.agents.named(request.node) if request.node else None
        if calling_agent() is not None:
            if agent is None:
                raise InputError("is missing.", field="node", allowed="the agent's own")
            await self._access.speak_for(agent)
        if request.app:
            plain_name(request.app, "app")
        node_id = "" if agent is None else agent.facts.id
        started_at = values.unix(request.started_at) if request.HasField("started_at") else None
        async with self._deciding(request.assignment_id) as book:
            before = book.all(ended=True)
            if agent is not None and calling_agent() is not None:
                _check_own(request.assignment_id, before, agent)
                if not before:
                    count = sum(1 for _ in self._state.assignments_on(node_id))
                    self._state.quotas.check_assignments(count)
                    self._state.quotas.take_assignment(node_id, self._state.now())
            resident = book.bind(
                request.assignment_id,
                self._state.now(),
                started_at=started_at,
                app=request.app,
                node_id=node_id,
            )
            # Asked before it counts as running there: what was to be expected of it.
            known = before[0] if before else None
            forecast = None
            if known is None or known.state != "bound":
                # To the engine, one that has expired is not there any more.
                forecast = self._forecast(resident, reserved=known is not None and known.active)
            held = await self._persisted(resident)
        if forecast is not None and held.state == "bound":
            await self._remember(held, forecast)
        return assignments_pb2.BindResponse(assignment=_message(held))

    async def Release(
        self, request: assignments_pb2.ReleaseRequest, context: Context
    ) -> assignments_pb2.ReleaseResponse:
        ended_at = values.unix(request.ended_at) if request.HasField("ended_at") else None
        held = await self.release(request.assignment_id, ended_at)
        return assignments_pb2.ReleaseResponse(assignment=_message(held))

    async def ListAssignments(
        self, request: assignments_pb2.ListAssignmentsRequest, context: Context
    ) -> assignments_pb2.ListAssignmentsResponse:
        state = self._state
        node_id = state.agents.named(request.node).facts.id if request.node else None
        if request.ended:
            residents = await state.stored(lambda: list_assignments(state.store, node_id))
        else:
            residents = state.book.all(node_id=node_id)
        return assignments_pb2.ListAssignmentsResponse(assignments=map(_message, residents))

    async def release(self, assignment_id: str, ended_at: float | None) -> Resident:
        """An assignment has ended, whoever says so. Raises UnknownNameError and StoreError."""
        async with self._deciding(assignment_id) as book:
            resident = book.release(assignment_id, self._state.now(), ended_at=ended_at)
            return await self._persisted(resident)

    async def end(self, assignment_id: str, node_id: str, ended_at: float) -> None:
        """A run that ended an assignment was reported of this node.

        Raises:
            AccessError: the assignment is on another node; it stays as it is.
            UnknownNameError, StoreError: as ``release`` does.
        """
        async with self._deciding(assignment_id) as book:
            if book.get(assignment_id).node_id != node_id:
                self._state.metrics.rejected.labels("assignment").inc()
                raise _not_here(assignment_id)
            await self._persisted(book.release(assignment_id, self._state.now(), ended_at=ended_at))

    @asynccontextmanager
    async def _deciding(self, assignment_id: str) -> AsyncIterator[AssignmentBook]:
        """A book of what is known of this id alone: decided on, then kept, and only then known."""
        async with self._turns.of(assignment_id):
            yield AssignmentBook(await self._known(assignment_id))

    async def _known(self, assignment_id: str) -> list[Resident]:
        state = self._state
        try:
            return [state.book.get(assignment_id)]
        except UnknownNameError:
            pass
        plain_name(assignment_id, "assignment_id")
        # It may have ended long ago, or another server may have taken it a moment ago.
        held = await state.stored(lambda: state.store.assignment(assignment_id))
        return [] if held is None else [held]

    async def _persisted(self, resident: Resident) -> Resident:
        """Write it to disk, unless that very state is there already."""
        try:
            if self._state.book.get(resident.assignment_id) == resident:
                return resident
        except UnknownNameError:
            pass
        return await self._state.keep_assignment(resident)

    def _ttl(self, request: assignments_pb2.ReserveRequest) -> float:
        settings = self._state.config.assignments
        if not request.HasField("ttl"):
            return settings.reservation_ttl_s
        ttl_s = values.seconds(request.ttl)
        if not 0.0 < ttl_s <= settings.reservation_ttl_max_s:
            raise InputError(
                "is out of range.",
                field="ttl",
                value=ttl_s,
                allowed=f"above 0 s, up to {settings.reservation_ttl_max_s:g} s",
            )
        return ttl_s

    def _forecast(self, resident: Resident, *, reserved: bool) -> Forecast | None:
        """Return what is predicted for it; None where there is no answer."""
        question = Question(
            app=resident.app,
            node=resident.node_id,
            placement=resident.placement,
            domain=resident.domain,
            resident_id=resident.assignment_id if reserved else "",
        )
        try:
            return self._state.engine.predict(question, self._state.now())
        except KongmingError as error:
            log.debug("No forecast for %s: %s", resident.assignment_id, error)
            return None

    async def _remember(self, resident: Resident, forecast: Forecast) -> None:
        try:
            await self._loop.placed(resident, forecast)
        except KongmingError as error:
            # The assignment is on disk, and that is what was asked for.
            log.warning("The forecast of %s was not kept: %s", resident.assignment_id, error)


def _check_own(assignment_id: str, known: list[Resident], agent: Agent) -> None:
    """Raises AccessError where an agent may not bind the assignment on its node: it is on another
    one; or it was never reserved and its id is not of this node's name, so that no agent takes an
    id that a scheduler is to give to an assignment elsewhere."""
    own = aliases(agent.facts)
    here = known[0].node_id == agent.facts.id if known else None
    if here is False or (here is None and assignment_id.rpartition(":")[2] not in own):
        raise _not_here(assignment_id)


def _not_here(assignment_id: str) -> AccessError:
    # Not whose it is: who asks has no right to know.
    return AccessError(
        f"The assignment {assignment_id} is none of this node's.",
        hint="An agent binds what was reserved on its node, or under an id that ends with a "
        "colon and the node's name.",
    )


def _domain(domain: int, domains: int) -> int:
    if not 0 <= domain < domains:
        raise InputError(
            "is none of the node's cache domains.",
            field="domain",
            value=domain,
            allowed=f"0 to {domains - 1}",
        )
    return domain


def _message(resident: Resident) -> assignments_pb2.Assignment:
    values = {name: getattr(resident, name) for name in Assignment.__slots__}
    return to_message(Assignment(**values), assignments_pb2.Assignment)
