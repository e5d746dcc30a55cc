"""The Fleet service: agents report, and people look at nodes. What is acknowledged is on disk."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, NamedTuple

import grpc

from kongming.errors import (
    AccessError,
    InputError,
    KongmingError,
    UnavailableError,
    UnknownNameError,
)
from kongming.rpc import records
from kongming.rpc.v1 import fleet_pb2, fleet_pb2_grpc, records_pb2
from kongming.run import Run
from kongming.store import Accepted, Reported
from kongming_server import reports
from kongming_server.closed_loop import ClosedLoop
from kongming_server.core.questions import Purpose
from kongming_server.hub import Hub, Interrupted
from kongming_server.ingest import Ingest, Report
from kongming_server.nodes import node_message
from kongming_server.ownership import Ownership, spoken_by_an_agent
from kongming_server.reports import NonsenseError
from kongming_server.services.placements import PlacementsService
from kongming_server.state import Agent, allowed

log = logging.getLogger(__name__)

if TYPE_CHECKING:  # Its types take parameters only for a checker.
    Context = grpc.aio.ServicerContext[object, object]

AT_ONCE = 16
"""Nodes of a page that are written before other calls have their turn."""

PAGE = 1000
"""Nodes on a page, at the most and where the request does not say."""


class FinishedRun(NamedTuple):
    """A run that is on disk, and the placement whose end it is; empty for none."""

    run: Run
    placement_id: str


class FleetService(fleet_pb2_grpc.FleetServicer):
    def __init__(
        self,
        hub: Hub,
        ingest: Ingest,
        loop: ClosedLoop,
        placements: PlacementsService,
        ownership: Ownership,
    ) -> None:
        self._hub = hub
        self._ingest = ingest
        self._loop = loop
        self._placements = placements
        self._ownership = ownership
        self._turn = 0

    # -- what agents say -----------------------------------------------------------------------

    async def Register(
        self, request: fleet_pb2.RegisterRequest, context: Context
    ) -> fleet_pb2.RegisterResponse:
        hub = self._hub
        facts = records.node_from_message(request.node)
        known = hub.agents.get(facts.id)
        if known is not None:
            # Before anything of it is changed.
            await self._claim(known)
        new = known is None or not known.registered or known.facts != facts
        agent = hub.put_node(facts)
        if known is None:
            self._ownership.claim(agent)
        # Until the new facts are on disk: where that fails, the next call writes them.
        agent.registered = not new
        agent.agent_version = request.agent_version
        agent.suite_version = request.suite_version
        hub.agents.put_peer(agent, request.peer_address)
        agent.allowed_apps = tuple(dict.fromkeys(request.allowed_apps))
        agent.wanted_profiles = tuple(
            app for app in agent.wanted_profiles if app in agent.allowed_apps
        )
        # Heard of first: what is kept of an agent says when it last spoke.
        hub.alive(agent, hub.now())
        await hub.keep(agent)
        if new:
            # After its agent: other servers shall not see a node that nobody has heard of.
            await hub.stored(lambda: hub.store.put_node(facts))
            agent.registered = True
        refused: InputError | None = None
        for message in request.references:
            try:
                await self._refer(message, agent)
            except InputError as error:
                refused = error
        if refused is not None:
            raise refused
        acknowledged = await hub.stored(lambda: hub.store.acknowledged(facts.id))
        return fleet_pb2.RegisterResponse(
            heartbeat_period=records.duration(hub.config.fleet.heartbeat_period_s),
            fingerprint_ttl=records.duration(hub.config.fleet.fingerprint_ttl_s),
            acknowledged=acknowledged,
        )

    async def _claim(self, agent: Agent) -> None:
        """Return where the caller may speak for this node.

        Raises:
            AccessError: it is another agent's.
        """
        before = agent.bound_to
        try:
            # One that never registered is kept when it does.
            if self._ownership.claim(agent) and agent.registered:
                await self._hub.keep(agent)
        except AccessError:
            self._hub.metrics.refused.labels("forbidden").inc()
            log.warning(
                "Another agent than the one that registered %s spoke for it.", agent.facts.name
            )
            raise
        except KongmingError:
            agent.bound_to = before
            raise

    async def _refer(self, message: records_pb2.Fingerprint, agent: Agent) -> None:
        """Keep an idle reference."""
        hub = self._hub
        try:
            fingerprint, domain = reports.fingerprint_of(
                message,
                agent,
                _no_reference,
                now=hub.now(),
                skew_s=hub.config.fleet.clock_skew_s,
                field="references",
            )
        except NonsenseError as error:
            await hub.doubt(agent, error.message)
            raise
        reported = Reported(agent.facts.id, 0, fingerprint, Purpose.REFERENCE.value)
        await self._ingest.add(Report((reported,), domain))

    async def ReportFingerprints(
        self,
        request_iterator: AsyncIterator[fleet_pb2.ReportFingerprintsRequest],
        context: Context,
    ) -> fleet_pb2.ReportFingerprintsResponse:
        answer = fleet_pb2.ReportFingerprintsResponse()
        waiting: list[asyncio.Future[Accepted]] = []
        most = self._hub.config.ingest.stream_records
        try:
            with self._hub.interruptible():
                taken = 0
                async for request in request_iterator:
                    future = await self._take(request, answer)
                    if future is not None:
                        waiting.append(future)
                    taken += 1
                    if taken >= most:
                        break
        except Interrupted:
            log.debug("A stream of fingerprints is answered early: the server is about to end.")
        for future in waiting:
            _note(await future, answer)
        return answer

    async def Report(
        self, request: fleet_pb2.ReportRequest, context: Context
    ) -> fleet_pb2.ReportResponse:
        most = self._hub.config.ingest.stream_records
        if len(request.fingerprints) > most:
            raise InputError(
                "has too many entries.",
                field="fingerprints",
                found=len(request.fingerprints),
                allowed=f"up to {most} in one request",
            )
        answer = fleet_pb2.ReportResponse()
        taken = [await self._take(one, answer.reported) for one in request.fingerprints]
        for future in taken:
            if future is not None:
                _note(await future, answer.reported)
        if request.HasField("heartbeat"):
            answer.heartbeat.CopyFrom(await self.Heartbeat(request.heartbeat, context))
        return answer

    async def _take(
        self,
        request: fleet_pb2.ReportFingerprintsRequest,
        answer: fleet_pb2.ReportFingerprintsResponse,
    ) -> asyncio.Future[Accepted] | None:
        hub = self._hub
        agent = hub.agents.known(request.node_id)
        await self._claim(agent)
        now = hub.now()
        try:
            purpose = reports.purpose_of(request.purpose)
            fingerprint, domain = reports.fingerprint_of(
                request.fingerprint,
                agent,
                _no_reference if purpose is Purpose.REFERENCE else hub.reference_of(agent),
                now=now,
                skew_s=hub.config.fleet.clock_skew_s,
            )
        except InputError as error:
            answer.rejected.append(_rejected(request.fingerprint.id, error))
            hub.metrics.rejected.labels("fingerprint").inc()
            if isinstance(error, NonsenseError):
                log.warning("%s reported nonsense: %s", agent.facts.name, error.message)
                await hub.doubt(agent, error.message)
            return None
        hub.alive(agent, now)
        if purpose is Purpose.ESTIMATE:
            hub.use_fingerprint(agent, domain, fingerprint, purpose)
            answer.accepted.append(fingerprint.id)
            return None
        await hub.reassure(agent)
        reported = Reported(agent.facts.id, request.sequence, fingerprint, purpose.value)
        return await self._ingest.enqueue(Report((reported,), domain))

    async def ReportRuns(
        self, request: fleet_pb2.ReportRunsRequest, context: Context
    ) -> fleet_pb2.ReportRunsResponse:
        hub = self._hub
        agent = hub.agents.known(request.node_id)
        await self._claim(agent)
        answer = fleet_pb2.ReportRunsResponse()
        kept: list[Reported] = []
        finished: dict[str, FinishedRun] = {}
        now, skew_s = hub.now(), hub.config.fleet.clock_skew_s
        references = hub.reference_of(agent)
        for message in request.runs:
            try:
                run = reports.run_of(message.run, agent, references, now=now, skew_s=skew_s)
            except InputError as error:
                hub.metrics.rejected.labels("run").inc()
                await self._refuse(agent, message.run.id, error, answer)
                continue
            kept.append(Reported(agent.facts.id, message.sequence, run))
            finished[run.id] = FinishedRun(run, message.placement_id)
        for each in request.signatures:
            try:
                signature = reports.signature_of(each, agent, references, now=now, skew_s=skew_s)
            except InputError as error:
                hub.metrics.rejected.labels("signature").inc()
                await self._refuse(agent, each.id, error, answer)
                continue
            kept.append(Reported(agent.facts.id, 0, signature))
        if spoken_by_an_agent():
            hub.alive(agent, now)
        if kept:
            accepted = await self._ingest.add(Report(tuple(kept)))
            _note(accepted, answer)
            for run_id in accepted.ids:
                if run_id in finished:
                    await self._finish(finished[run_id])
        return answer

    async def _refuse(
        self, agent: Agent, id_: str, error: InputError, answer: fleet_pb2.ReportRunsResponse
    ) -> None:
        answer.rejected.append(_rejected(id_, error))
        if isinstance(error, NonsenseError):
            log.warning("%s reported nonsense: %s", agent.facts.name, error.message)
            await self._hub.doubt(agent, error.message)

    async def _finish(self, finished: FinishedRun) -> None:
        """What follows from a run that is on disk: a repeated delivery does it once more."""
        try:
            await self._loop.run_finished(finished)
            if finished.placement_id:
                await self._placements.release(
                    finished.placement_id, reports.ended_at(finished.run)
                )
        except UnknownNameError:
            log.info("A run ended the placement %s: unknown.", finished.placement_id)
        except KongmingError as error:
            log.warning("The run %s was kept but not followed up: %s", finished.run.id, error)

    async def Heartbeat(
        self, request: fleet_pb2.HeartbeatRequest, context: Context
    ) -> fleet_pb2.HeartbeatResponse:
        hub = self._hub
        agent = hub.agents.get(request.node_id)
        if agent is None or not agent.registered:
            return fleet_pb2.HeartbeatResponse(register_again=True)
        await self._claim(agent)
        now = hub.now()
        agent.probe_cost = request.probe_cost
        agent.spooled = request.spooled
        agent.passive = {name: request.passive[name] for name in request.passive}
        hub.alive(agent, now)
        if request.HasField("peer_timing"):
            await self._timed(agent, request.peer_timing, now)
        answer = fleet_pb2.HeartbeatResponse(
            probe_now=agent.probe_now,
            profile_apps=await hub.profile_requests.for_heartbeat(agent, context.peer()),
            placement_ids=hub.placements_on(agent.facts.id),
        )
        agent.probe_now = False
        if now >= agent.peer_due_at:
            self._turn += 1
            peer = hub.agents.peer_for(agent.facts.id, self._turn)
            if peer is not None:
                answer.peer_address = peer.peer_address
                answer.peer_node_id = peer.facts.id
                agent.peer_due_at = now + hub.config.fleet.peer_period_s
        return answer

    async def _timed(self, agent: Agent, message: fleet_pb2.PeerTiming, now: float) -> None:
        """Keep what an agent timed to the peer that it was named."""
        hub = self._hub
        if message.peer_node_id == agent.facts.id or hub.agents.get(message.peer_node_id) is None:
            # The peer may have gone since: what the heartbeat says beside it still counts.
            hub.metrics.rejected.labels("peer-timing").inc()
            return
        try:
            timing = reports.peer_timing_of(message, now=now)
        except NonsenseError as error:
            hub.metrics.rejected.labels("peer-timing").inc()
            log.warning("%s reported nonsense: %s", agent.facts.name, error.message)
            await hub.doubt(agent, error.message)
            return
        agent.timed(message.peer_node_id, timing)
        hub.keep_soon(agent)
        hub.metrics.accepted.labels("peer-timing").inc()
        hub.metrics.peer_round_trip.observe(timing.round_trip_s)
        if timing.bytes_per_s > 0.0:
            hub.metrics.peer_rate.observe(timing.bytes_per_s)

    # -- what people ask -----------------------------------------------------------------------

    async def ListNodes(
        self, request: fleet_pb2.ListNodesRequest, context: Context
    ) -> fleet_pb2.ListNodesResponse:
        hub = self._hub
        if request.page_size < 0:
            raise InputError("is negative.", field="page_size", found=request.page_size)
        size = min(request.page_size or PAGE, PAGE)
        after = [agent for agent in hub.agents if agent.facts.id > request.page_token]
        after.sort(key=lambda agent: agent.facts.id)
        answer = fleet_pb2.ListNodesResponse(
            next_page_token=after[size - 1].facts.id if len(after) > size else ""
        )
        for number, agent in enumerate(after[:size]):
            if number % AT_ONCE == 0:
                await asyncio.sleep(0)
            answer.nodes.append(node_message(hub, agent, hub.now()))
        return answer

    async def WatchNode(
        self, request: fleet_pb2.WatchNodeRequest, context: Context
    ) -> AsyncIterator[fleet_pb2.WatchNodeResponse]:
        hub = self._hub
        agent = hub.agents.named(request.node)
        with hub.watchers.watching(agent.facts.id) as changed:
            while not hub.ending.is_set():
                changed.clear()
                yield fleet_pb2.WatchNodeResponse(node=node_message(hub, agent, hub.now()))
                await changed.wait()
        raise UnavailableError("The server is about to end.", hint="Watch again.")

    async def RequestProfile(
        self, request: fleet_pb2.RequestProfileRequest, context: Context
    ) -> fleet_pb2.RequestProfileResponse:
        agent = self._hub.agents.named(request.node)
        if not request.apps:
            raise InputError("is empty.", field="apps", allowed="names of applications")
        apps = allowed(request.apps, agent)
        agent.wanted_profiles = tuple(dict.fromkeys((*agent.wanted_profiles, *apps)))
        await self._hub.keep(agent)
        return fleet_pb2.RequestProfileResponse()


def _no_reference(domain: int) -> None:
    """What a new reference is held against."""


def _note(
    accepted: Accepted,
    answer: fleet_pb2.ReportFingerprintsResponse | fleet_pb2.ReportRunsResponse,
) -> None:
    answer.accepted.extend(accepted.ids)
    for one in accepted.refused:
        answer.rejected.append(fleet_pb2.Rejected(id=one.id, field=one.field, message=one.message))


def _rejected(id_: str, error: InputError) -> fleet_pb2.Rejected:
    return fleet_pb2.Rejected(id=id_, field=error.field or "", message=error.message)
