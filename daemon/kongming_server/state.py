"""State that all services of one server share: store, engine, agents, assignments."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Executor
from typing import TypeVar

from kongming.engine.assignments import AssignmentBook
from kongming.engine.engine import Engine
from kongming.engine.settings import Purpose, Settings
from kongming.records.errors import StoreError, UnknownNameError
from kongming.records.fingerprint import Fingerprint, NodeFacts
from kongming.records.resident import Resident
from kongming.records.run import Run, Signature
from kongming.store import Accepted, Store
from kongming_server.configuration.settings import Config
from kongming_server.ingest.decode import taken_at
from kongming_server.ingest.write import Report
from kongming_server.monitoring.metrics import Metrics
from kongming_server.nodes.profile_requests import ProfileRequests
from kongming_server.nodes.quotas import Quotas
from kongming_server.nodes.registry import Agent, Agents, Watchers
from kongming_server.running.clock import SteadyClock
from kongming_server.running.outage import Outage
from kongming_server.running.supervision import Supervisor

T = TypeVar("T")


class SharedState:
    """State that outlives a call. Everything but the store is touched on the event loop alone."""

    def __init__(
        self,
        config: Config,
        store: Store,
        executor: Executor,
        engine: Engine,
        clock: SteadyClock,
        metrics: Metrics,
        engine_settings: Settings,
        outage: Outage | None = None,
        supervisor: Supervisor | None = None,
    ) -> None:
        self.config = config
        self.outage = Outage() if outage is None else outage
        self._supervisor = Supervisor() if supervisor is None else supervisor
        self.store = store
        self.engine = engine
        self.clock = clock
        self.metrics = metrics
        self.engine_settings = engine_settings
        self.agents = Agents()
        self.profile_requests = ProfileRequests(self)
        self.book = AssignmentBook()
        self.watchers = Watchers(config.fleet.watchers)
        self.ending = asyncio.Event()
        self.quotas = Quotas(config.quotas, engine.knows_application)
        self._executor = executor
        self._active: dict[str, dict[str, None]] = {}
        self._heard: dict[str, float] = {}

    @property
    def shared(self) -> bool:
        """Return whether other servers may be at work on this store."""
        return self.store.url.startswith("postgresql")

    def now(self) -> float:
        return self.clock.now()

    async def stored(self, call: Callable[[], T], work: str = "other") -> T:
        """The result of a call to the store, which blocks a thread and not the event loop.

        ``work`` is what the metrics call it. Raises what the call raises.
        """
        begun = time.perf_counter()
        try:
            with self._supervisor.working("A call to the store"):
                result = await asyncio.get_running_loop().run_in_executor(self._executor, call)
        except StoreError as error:
            self.metrics.store_errors.inc()
            self.outage.failed(error)
            raise
        else:
            # Reading goes on while a disk is full.
            if work in _WRITING:
                self.outage.succeeded()
            return result
        finally:
            self.metrics.store_seconds.labels(work).observe(time.perf_counter() - begun)

    def end(self) -> None:
        """Calls that wait for something to happen are to come to their end."""
        self.ending.set()
        self.watchers.all_changed()

    # -- nodes ---------------------------------------------------------------------------------

    def put_node(self, facts: NodeFacts) -> Agent:
        """Raises InputError for a node that the engine cannot hold."""
        self.engine.put_node(facts)
        return self.agents.put(facts)

    def reference_of(self, agent: Agent) -> Callable[[int], Mapping[str, float] | None]:
        """The idle reference of each of a node's cache domains."""
        return lambda domain: self.engine.reference(agent.facts.id, domain)

    def alive(self, agent: Agent, now: float) -> None:
        """Its agent has spoken to this server."""
        self.seen(agent, now)
        self._heard[agent.facts.id] = now

    def seen(self, agent: Agent, at: float) -> None:
        """Its agent has spoken to some server."""
        agent.last_heartbeat = max(at, agent.last_heartbeat or 0.0)
        self.engine.heartbeat(agent.facts.id, agent.last_heartbeat, agent.probe_cost)
        if agent.silent and self.now() - at < self.config.fleet.silent_after_s:
            agent.silent = False
            self.watchers.changed(agent.facts.id)

    def heard(self) -> dict[str, float]:
        """Return when agents spoke to this server, since the last time that this was asked."""
        heard, self._heard = self._heard, {}
        return heard

    def use_fingerprint(
        self, agent: Agent, domain: int, fingerprint: Fingerprint, purpose: Purpose
    ) -> None:
        """A live fingerprint that is on disk, or an estimate."""
        by = agent.bound_to
        self.engine.put_fingerprint(agent.facts.id, domain, fingerprint, purpose, self.now(), by=by)
        agent.last_fingerprint = max(taken_at(fingerprint), agent.last_fingerprint or 0.0)
        self.watchers.changed(agent.facts.id)

    def use_report(self, report: Report, accepted: Accepted) -> None:
        """Use what was just committed, in the order of the commits."""
        refused = {refusal.id for refusal in accepted.refused}
        new = set(accepted.new)
        for reported in report.records:
            record = reported.record
            counter = (
                self.metrics.rejected
                if record.id in refused
                else self.metrics.accepted
                if record.id in new
                else self.metrics.duplicates
            )
            counter.labels(type(record).__name__.lower()).inc()
            agent = self.agents.get(reported.node_id)
            if record.id in refused or agent is None or isinstance(record, Run):
                continue
            if isinstance(record, Signature):
                if reported.requested:
                    self.engine.put_signatures([record])
            elif reported.purpose == Purpose.REFERENCE.value:
                by = agent.bound_to
                self.engine.put_reference(reported.node_id, report.domain, record, by=by)
                self.watchers.changed(reported.node_id)
            else:
                self.use_fingerprint(agent, report.domain, record, Purpose.LIVE)

    async def keep(self, agent: Agent) -> None:
        """Put on disk what is known of an agent."""
        node_id, document = agent.facts.id, agent.to_document()
        seen_at = agent.last_heartbeat or 0.0
        await self.stored(lambda: self.store.put_agent(node_id, document, seen_at), "agent")

    async def quarantine(self, agent: Agent, reason: str) -> None:
        """Quarantine a node that reported an implausible value: it is not ranked until it has sent
        enough plausible reports."""
        agent.plausible = 0
        if agent.suspect == reason:
            return
        new, agent.suspect = agent.suspect is None, reason
        self.engine.mark_suspect(agent.facts.id, reason)
        self.watchers.changed(agent.facts.id)
        if new:
            # Not each other reason: a report may give thousands.
            await self.keep(agent)

    async def count_plausible(self, agent: Agent) -> None:
        """Count a plausible fingerprint; enough of them end a quarantine."""
        if agent.suspect is None:
            return
        agent.plausible += 1
        if agent.plausible < _PLAUSIBLE_BEFORE_RANKED:
            return
        agent.suspect = None
        self.engine.clear_suspect(agent.facts.id)
        self.watchers.changed(agent.facts.id)
        await self.keep(agent)

    # -- assignments ----------------------------------------------------------------------------

    async def keep_assignment(self, resident: Resident) -> Resident:
        """Put an assignment on disk, and only then into the matrix; returns what is held there.

        Another server may have gone further with it: then that is held.
        """
        held = await self.stored(lambda: self.store.put_assignment(resident), "assignment")
        self.placed(held)
        return held

    def assignments_on(self, node_id: str) -> Iterable[str]:
        """Ids of the assignments that are reserved or bound there."""
        return self._active.get(node_id, ())

    def placed(self, resident: Resident) -> None:
        """Take over what is on disk of an assignment; its node is probed soon.

        Older news of it, which another thread or server brought late, change nothing.
        """
        try:
            known = self.book.get(resident.assignment_id)
        except UnknownNameError:
            pass
        else:
            if _ORDER.index(resident.state) < _ORDER.index(known.state):
                return
        active = self._active.setdefault(resident.node_id, {})
        if resident.active:
            active[resident.assignment_id] = None
        else:
            active.pop(resident.assignment_id, None)
        self.book.put(resident)
        self.engine.put_assignment(resident)
        agent = self.agents.get(resident.node_id)
        if agent is not None and resident.state != "reserved":
            agent.probe_now = True
        self.watchers.changed(resident.node_id)


_PLAUSIBLE_BEFORE_RANKED = 3
"""Plausible fingerprints in a row that end a quarantine."""

_WRITING = ("agent", "assignment")
"""Work on the store that writes, whatever there is."""

_ORDER = ("reserved", "expired", "bound", "released")
"""States of an assignment: a later one is never followed by an earlier one."""
