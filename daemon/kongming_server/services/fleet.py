"""The Fleet service: reports of agents, and listings of nodes. What is acknowledged is on disk."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

import grpc

from kongming.engine.settings import Purpose
from kongming.records.errors import ImplausibleError, InputError, UnavailableError
from kongming.records.run import Run, Signature
from kongming.rpc import record_codec as records
from kongming.rpc import value_codec as values
from kongming.rpc.v1 import fleet_pb2, fleet_pb2_grpc, records_pb2
from kongming.store import Accepted, Reported
from kongming_server.calls.interceptors import check_length
from kongming_server.ingest import decode as reports
from kongming_server.ingest.write import Ingest, Report
from kongming_server.nodes.ownership import (
    calling_agent,
    holder_of,
    is_new,
    spoken_by_an_agent,
    spoken_by_an_operator,
)
from kongming_server.nodes.profile_requests import OPERATOR
from kongming_server.nodes.registry import Agent, allowed
from kongming_server.quality.closed_loop import ClosedLoop
from kongming_server.running.turns import Turns
from kongming_server.security.admission import current_call
from kongming_server.services.assignments import AssignmentsService
from kongming_server.services.finished_runs import FinishedRun, follow_up
from kongming_server.services.node_access import NodeAccess
from kongming_server.services.node_messages import node_message
from kongming_server.state import SharedState

log = logging.getLogger(__name__)

if TYPE_CHECKING:  # Its types take parameters only for a checker.
    Context = grpc.aio.ServicerContext[object, object]

AT_ONCE = 16
"""Nodes of a page, or records of a report, that are worked on before others have their turn."""

RECORDS = 32
"""Of one report in one transaction, so that the reports of others do not wait for all of it."""

PAGE = 1000
"""Nodes on a page, at the most and where the request does not say."""


PAGE_BYTES = 2 << 20
"""A page with so many bytes is not made longer: a few nodes may have very long facts, and clients
take 4 MiB unless set otherwise."""


_CLOCK_SKEW_S = 5.0
"""A reported time further ahead than this is replaced by the server's own."""


class FleetService(fleet_pb2_grpc.FleetServicer):
    def __init__(
        self,
        state: SharedState,
        ingest: Ingest,
        loop: ClosedLoop,
        assignments: AssignmentsService,
        access: NodeAccess,
    ) -> None:
        self._state = state
        self._ingest = ingest
        self._loop = loop
        self._assignments = assignments
        self._access = access
        self._turns = Turns()

    # -- what agents say -----------------------------------------------------------------------

    async def Register(
        self, request: fleet_pb2.RegisterRequest, context: Context
    ) -> fleet_pb2.RegisterResponse:
        state = self._state
        facts = records.node_from_message(request.node)
        known = state.agents.get(facts.id)
        called = (("node.id", facts.id), ("node.name", facts.name))
        for (field, name), new_name in zip(called, is_new(facts, known), strict=True):
            if new_name:
                reports.node_name(name, field)
        for app in request.allowed_apps:
            reports.plain_name(app, "allowed_apps")
        if known is not None:
            # Before anything of it is changed.
            await self._access.speak_for(known)
        # Of a node that is not known yet by whose it is to be, so that new ones bring no more.
        state.quotas.take_bytes(_quota_of(facts.id, known), request.ByteSize(), state.now())
        new = known is None or known.unwritten or not known.registered or known.facts != facts
        agent = self._access.register(facts)
        # Until the new facts are on disk: where that fails, the next call writes them.
        agent.unwritten = new
        agent.agent_version = request.agent_version
        agent.suite_version = request.suite_version
        agent.allowed_apps = tuple(dict.fromkeys(request.allowed_apps))
        agent.wanted_profiles = tuple(
            app for app in agent.wanted_profiles if app in agent.allowed_apps
        )
        # Heard of first: what is kept of an agent says when it last spoke.
        state.alive(agent, state.now())
        await state.keep(agent)
        if new:
            # After its agent: other servers shall not see a node that nobody has heard of.
            await state.stored(lambda: state.store.put_node(facts))
            agent.registered, agent.unwritten = True, False
        refused: InputError | None = None
        for message in request.references:
            try:
                await self._refer(message, agent)
            except InputError as error:
                refused = error
        if refused is not None:
            raise refused
        acknowledged = await state.stored(lambda: state.store.acknowledged(facts.id))
        return fleet_pb2.RegisterResponse(
            heartbeat_period=values.duration(state.config.fleet.heartbeat_period_s),
            acknowledged=acknowledged,
        )

    async def _refer(self, message: records_pb2.Fingerprint, agent: Agent) -> None:
        """Keep an idle reference."""
        state = self._state
        try:
            fingerprint, domain = reports.fingerprint_of(
                message,
                agent,
                _no_reference,
                now=state.now(),
                skew_s=_CLOCK_SKEW_S,
                field="references",
            )
        except ImplausibleError as error:
            await state.quarantine(agent, error.message)
            raise
        state.quotas.name_suite(agent.bound_to, fingerprint.suite_version)
        reported = Reported(agent.facts.id, 0, fingerprint, Purpose.REFERENCE.value)
        await self._ingest.add(Report((reported,), domain, message.ByteSize(), _bringing(agent)))

    async def Report(
        self, request: fleet_pb2.ReportRequest, context: Context
    ) -> fleet_pb2.ReportResponse:
        state = self._state
        check_length(request, "fingerprints", state.config.ingest.report_records)
        answer = fleet_pb2.ReportResponse()
        if request.fingerprints:
            agent = state.agents.known(request.node_id)
            await self._access.speak_for(agent)
            state.quotas.take_bytes(agent.facts.id, request.ByteSize(), state.now())
            taken = []
            for number, each in enumerate(request.fingerprints):
                await _let_others(number)
                taken.append(await self._take(agent, each, answer))
            for future in taken:
                if future is not None:
                    _note(await future, answer)
        if request.HasField("heartbeat"):
            answer.instructions.CopyFrom(await self._heard(request))
        return answer

    async def _take(
        self,
        agent: Agent,
        reported: fleet_pb2.ReportedFingerprint,
        answer: fleet_pb2.ReportResponse,
    ) -> asyncio.Future[Accepted] | None:
        state = self._state
        now = state.now()
        try:
            purpose = reports.purpose_of(reported.purpose)
            sequence = reports.sequence_of(reported.sequence, "sequence")
            state.quotas.name_suite(agent.bound_to, reported.fingerprint.suite_version)
            fingerprint, domain = reports.fingerprint_of(
                reported.fingerprint,
                agent,
                _no_reference if purpose is Purpose.REFERENCE else state.reference_of(agent),
                now=now,
                skew_s=_CLOCK_SKEW_S,
            )
        except InputError as error:
            answer.rejected.append(_rejected(reported.fingerprint.id, error))
            state.metrics.rejected.labels("fingerprint").inc()
            if isinstance(error, ImplausibleError):
                log.warning("%s reported an implausible value: %s", agent.facts.name, error.message)
                await state.quarantine(agent, error.message)
            return None
        state.alive(agent, now)
        if purpose is Purpose.ESTIMATE:
            state.use_fingerprint(agent, domain, fingerprint, purpose)
            answer.accepted.append(fingerprint.id)
            return None
        await state.count_plausible(agent)
        record = Reported(agent.facts.id, sequence, fingerprint, purpose.value)
        report = Report((record,), domain, reported.ByteSize(), _bringing(agent))
        return await self._ingest.enqueue(report)

    async def ReportRuns(
        self, request: fleet_pb2.ReportRunsRequest, context: Context
    ) -> fleet_pb2.ReportRunsResponse:
        state = self._state
        agent = state.agents.known(request.node_id)
        await self._access.speak_for(agent)
        state.quotas.take_bytes(agent.facts.id, request.ByteSize(), state.now())
        answer = fleet_pb2.ReportRunsResponse()
        reported: list[Reported] = []
        finished: dict[str, FinishedRun] = {}
        now, skew_s = state.now(), _CLOCK_SKEW_S
        references = state.reference_of(agent)
        for number, message in enumerate(request.runs):
            await _let_others(number)
            try:
                run = reports.run_of(message.run, agent, references, now=now, skew_s=skew_s)
                sequence = reports.sequence_of(message.sequence, "runs.sequence")
                state.quotas.name_application(agent.bound_to, run.app)
            except InputError as error:
                state.metrics.rejected.labels("run").inc()
                await self._refuse(agent, message.run.id, error, answer)
                continue
            requested = _is_requested(agent, run)
            reported.append(Reported(agent.facts.id, sequence, run, requested=requested))
            finished[run.id] = FinishedRun(run, message.assignment_id)
        for number, each in enumerate(request.signatures):
            await _let_others(number)
            try:
                signature = reports.signature_of(each, agent, references, now=now, skew_s=skew_s)
                state.quotas.name_application(agent.bound_to, signature.app)
            except InputError as error:
                state.metrics.rejected.labels("signature").inc()
                await self._refuse(agent, each.id, error, answer)
                continue
            requested = _is_requested(agent, signature)
            reported.append(Reported(agent.facts.id, 0, signature, requested=requested))
        if spoken_by_an_agent():
            state.alive(agent, now)
        if reported:
            by = _bringing(agent)
            size = request.ByteSize() * RECORDS // max(RECORDS, len(reported))
            parts = [tuple(reported[i : i + RECORDS]) for i in range(0, len(reported), RECORDS)]
            for future in [
                await self._ingest.enqueue(Report(part, size=size, by=by)) for part in parts
            ]:
                accepted = await future
                _note(accepted, answer)
                ended = [finished[run_id] for run_id in accepted.ids if run_id in finished]
                # One caller has one thread of those that all share.
                async with self._turns.of(by):
                    for finished_run in ended:
                        await follow_up(finished_run, self._assignments, self._loop)
        return answer

    async def _refuse(
        self, agent: Agent, id_: str, error: InputError, answer: fleet_pb2.ReportRunsResponse
    ) -> None:
        answer.rejected.append(_rejected(id_, error))
        if isinstance(error, ImplausibleError):
            log.warning("%s reported an implausible value: %s", agent.facts.name, error.message)
            await self._state.quarantine(agent, error.message)

    async def _heard(self, request: fleet_pb2.ReportRequest) -> fleet_pb2.Instructions:
        """Keep the agent's state; what the server asks of it."""
        state, beat = self._state, request.heartbeat
        agent = state.agents.get(request.node_id)
        if agent is None or not agent.registered or agent.unwritten:
            return fleet_pb2.Instructions(register_again=True)
        await self._access.speak_for(agent)
        now = state.now()
        try:
            agent.probe_cost = reports.probe_cost_of(beat.probe_cost)
        except ImplausibleError as error:
            # It lives all the same, and what came with it is kept.
            log.warning("%s reported an implausible value: %s", agent.facts.name, error.message)
            await state.quarantine(agent, error.message)
        agent.spooled = beat.spooled
        state.alive(agent, now)
        call = current_call.get()
        peer = "" if call is None else call.peer
        wanted = await state.profile_requests.for_heartbeat(agent, peer)
        instructions = fleet_pb2.Instructions(
            probe_now=agent.probe_now,
            profile_apps=wanted,
            campaigns={app: agent.campaign_of(app) for app in wanted},
            assignment_ids=state.assignments_on(agent.facts.id),
        )
        agent.probe_now = False
        return instructions

    # -- what people ask -----------------------------------------------------------------------

    async def ListNodes(
        self, request: fleet_pb2.ListNodesRequest, context: Context
    ) -> fleet_pb2.ListNodesResponse:
        state = self._state
        if request.page_size < 0:
            raise InputError("is negative.", field="page_size", value=request.page_size)
        size = min(request.page_size or PAGE, PAGE)
        after = [agent for agent in state.agents if agent.facts.id > request.page_token]
        after.sort(key=lambda agent: agent.facts.id)
        answer = fleet_pb2.ListNodesResponse()
        room = PAGE_BYTES
        for number, agent in enumerate(after):
            if number == size or room < 0:
                answer.next_page_token = after[number - 1].facts.id
                break
            if number % AT_ONCE == 0:
                await asyncio.sleep(0)
            node = node_message(state, agent, state.now())
            room -= node.ByteSize()
            answer.nodes.append(node)
        return answer

    async def WatchNode(
        self, request: fleet_pb2.WatchNodeRequest, context: Context
    ) -> AsyncIterator[fleet_pb2.WatchNodeResponse]:
        state = self._state
        agent = state.agents.named(request.node)
        with state.watchers.watching(agent.facts.id) as changed:
            while not state.ending.is_set():
                changed.clear()
                yield fleet_pb2.WatchNodeResponse(node=node_message(state, agent, state.now()))
                await changed.wait()
        raise UnavailableError("The server is about to end.", hint="Watch again.")

    async def RequestProfile(
        self, request: fleet_pb2.RequestProfileRequest, context: Context
    ) -> fleet_pb2.RequestProfileResponse:
        agent = self._state.agents.named(request.node)
        if not request.apps:
            raise InputError("is empty.", field="apps", allowed="names of applications")
        apps = allowed(request.apps, agent)
        for app in apps:
            agent.want(app, OPERATOR)
        await self._state.keep(agent)
        return fleet_pb2.RequestProfileResponse()


def _quota_of(node_id: str, known: Agent | None) -> str:
    caller = calling_agent()
    return node_id if known is not None or caller is None else holder_of(caller)


def _bringing(agent: Agent) -> str:
    """Return who brings an agent's reports: whose node it is, or the node where callers are not
    authenticated."""
    return agent.bound_to or agent.facts.id


async def _let_others(number: int) -> None:
    if number % AT_ONCE == AT_ONCE - 1:
        await asyncio.sleep(0)


def _is_requested(agent: Agent, record: Run | Signature) -> bool:
    """Return whether an operator or a server asked for it, so that models may learn from it. Agents
    and schedulers report what they like; where callers are not authenticated, all are operators."""
    return spoken_by_an_operator() or agent.was_asked(record.campaign, record.app)


def _no_reference(domain: int) -> None:
    """Compare a new reference with nothing."""


def _note(
    accepted: Accepted,
    answer: fleet_pb2.ReportResponse | fleet_pb2.ReportRunsResponse,
) -> None:
    answer.accepted.extend(accepted.ids)
    for refusal in accepted.refused:
        answer.rejected.append(
            fleet_pb2.Rejected(id=refusal.id, field=refusal.field, message=refusal.message)
        )


def _rejected(id_: str, error: InputError) -> fleet_pb2.Rejected:
    return fleet_pb2.Rejected(id=id_, field=error.field or "", message=error.message)
