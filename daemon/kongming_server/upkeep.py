"""Periodic work of the server: tasks that run independently, so that none stops another."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence

from kongming.records.errors import KongmingError, StoreError
from kongming.records.resident import Resident
from kongming.store import Retention
from kongming_server.ingest.write import Ingest
from kongming_server.monitoring.metrics import Metrics
from kongming_server.nodes.registry import AGENT_STATES
from kongming_server.state import SharedState

log = logging.getLogger(__name__)

Work = Callable[[], Awaitable[None]]


class Every:
    """Tasks that do something every so often until they are stopped."""

    def __init__(self) -> None:
        self._tasks: list[asyncio.Task[None]] = []

    def start(self, name: str, period_s: float, work: Work) -> None:
        self._tasks.append(asyncio.create_task(self._go_on(name, period_s, work), name=name))

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks.clear()

    async def _go_on(self, name: str, period_s: float, work: Work) -> None:
        failed = False
        while True:
            await asyncio.sleep(period_s)
            try:
                await work()
            except StoreError as error:
                # Once for each outage: the same line every second helps nobody.
                if not failed:
                    log.warning("%s: %s It is tried again.", name, error)
                failed = True
            except KongmingError as error:
                log.error("%s: %s", name, error)
            except Exception:
                log.exception("%s failed, and is tried again.", name)
            else:
                failed = False


class Upkeep:
    """The work of those tasks."""

    def __init__(self, state: SharedState, ingest: Ingest, metrics: Metrics) -> None:
        self._state = state
        self._ingest = ingest
        self._metrics = metrics
        self._unkept: dict[str, Resident] = {}
        self._unsaid: dict[str, float] = {}
        self._rounds = 0
        self._complete_at = state.now()
        self._lagging = False
        metrics.ingest_waiting.set_function(lambda: float(ingest.queued))

    async def follow_clock(self) -> None:
        """Say so when the system's clock has jumped; the server's own goes on as it was."""
        gap = self._state.clock.follow()
        if abs(gap) > _JUMP_S:
            log.log(
                logging.WARNING if not self._jumped else logging.DEBUG,
                "The system's clock jumped by %.1f s: it is followed slowly.",
                gap,
            )
        self._jumped = abs(gap) > _JUMP_S

    _jumped = False

    async def keep_up(self) -> None:
        """Work off the predictions that are out of date: a slice, and more where that was not
        enough, with time for calls between them."""
        spent_s, more = 0.0, True
        while more:
            begun = time.perf_counter()
            more = await self.refresh()
            spent_s += time.perf_counter() - begun
            if more:
                await asyncio.sleep(_BETWEEN_SLICES_S)
        # Once through all models costs much the same for few changes as for many.
        await asyncio.sleep(min(spent_s / _REFRESHING_SHARE, _LONGEST_PAUSE_S))

    async def refresh(self) -> bool:
        """A slice of the predictions that are out of date; whether any are left."""
        begun = time.perf_counter()
        staleness_s = self._state.engine.refresh(
            self._state.now(), self._state.config.matrix.refresh_budget_s
        )
        self._metrics.matrix_refresh.observe(time.perf_counter() - begun)
        self._metrics.matrix_staleness.set(staleness_s)
        return staleness_s > 0.0 or self._state.engine.lagging

    async def expire(self) -> None:
        """End reservations whose time is over: in the matrix at once, on disk as soon as can be."""
        state = self._state
        for resident in state.book.expire(state.now()):
            state.placed(resident)
            self._unkept[resident.assignment_id] = resident
        for resident in list(self._unkept.values()):
            if not _still(state, resident):
                # It was bound after all, and that is on disk.
                del self._unkept[resident.assignment_id]
                continue
            await state.keep_assignment(resident)
            del self._unkept[resident.assignment_id]

    async def notice_silence(self) -> None:
        """Tell watchers of nodes that have not been heard of for too long."""
        state = self._state
        now, limit_s = state.now(), state.config.fleet.silent_after_s
        for agent in state.agents:
            silent = agent.last_heartbeat is None or now - agent.last_heartbeat >= limit_s
            if silent and not agent.silent:
                agent.silent = True
                state.watchers.changed(agent.facts.id)

    async def spread_if_due(self) -> None:
        """``spread``, each time where other servers are on the store, and else now and then."""
        self._rounds += 1
        if self._state.shared or self._rounds % _ALONE_ROUNDS == 0:
            await self.spread()

    async def spread(self) -> None:
        """Tell the other servers, and a later start, whose agents have spoken; hear of theirs."""
        state = self._state
        self._unsaid |= state.heard()
        written = dict(self._unsaid)
        await state.stored(lambda: state.store.agents_seen(written))
        self._unsaid = {n: at for n, at in self._unsaid.items() if written.get(n) != at}
        if not state.shared:
            return
        for row in await state.stored(state.store.agents):
            agent = state.agents.get(row.node_id)
            if agent is not None and row.seen_at > (agent.last_heartbeat or 0.0):
                state.seen(agent, row.seen_at)

    async def thin(self) -> None:
        """Turn old fingerprints into hourly figures, and delete what is too old; until nothing is
        left, with time for other work on the store."""
        settings = self._state.config.retention
        retention = Retention(**{name: getattr(settings, name) for name in Retention.__slots__})
        store = self._state.store
        while True:
            now = self._state.now()
            done = await self._state.stored(
                lambda now=now: store.retain(retention, now=now, budget_s=settings.budget_s)  # type: ignore[misc]
            )
            self._metrics.retired.inc(done.rolled_up)
            self._note_retention(now, done.complete_at, done.failed)
            if done.finished or not (done.rolled_up or any(done.deleted.values())):
                return
            await asyncio.sleep(_RETENTION_PAUSE * settings.budget_s)

    def _note_retention(
        self, now: float, complete_at: float | None, failed: Sequence[str] = ()
    ) -> None:
        """Say so where rows stay for far longer than the settings say."""
        self._complete_at = max(self._complete_at, complete_at or 0.0)
        lag_s = max(0.0, now - self._complete_at)
        self._metrics.retention_lag.set(lag_s)
        lagging = lag_s > _LONGEST_LAG_S
        if lagging and not self._lagging:
            why = (
                f"the fingerprints of {', '.join(failed[:5])} cannot be aggregated"
                if failed
                else "rows come faster than they are thinned. Let agents probe less often, or give "
                "the store a faster disk"
            )
            log.warning("Retention is %.0f h behind: %s.", lag_s / 3600.0, why)
        elif self._lagging and not lagging:
            log.warning("Retention has caught up.")
        self._lagging = lagging

    async def count(self) -> None:
        """Refresh gauges that are too expensive to compute per scrape."""
        state, now = self._state, self._state.now()
        states = Counter(agent.state for agent in state.agents)
        for agent_state in AGENT_STATES:
            self._metrics.nodes.labels(agent_state).set(states[agent_state])
        assignments = Counter(assignment.state for assignment in state.book.all())
        for name in ("reserved", "bound"):
            self._metrics.assignments.labels(name).set(assignments[name])
        ages = {
            agent.facts.id: now - agent.last_fingerprint
            for agent in state.agents
            if agent.state == "ready" and agent.last_fingerprint is not None
        }
        age, ttl = oldest(ages, state.engine.ttl_s, state.engine.least_ttl_s)
        self._metrics.oldest_fingerprint.set(age)
        self._metrics.fingerprint_ttl.set(ttl)


def oldest(
    ages: Mapping[str, float], ttl_of: Callable[[str], float], least_ttl_s: float
) -> tuple[float, float]:
    """Age and time to live of the fingerprint that is oldest for its time to live, by node: a busy
    node's is old after a minute, a quiet one's after half an hour. None is (0, ``least_ttl_s``)."""
    worst = (0.0, least_ttl_s)
    for node_id, age in sorted(ages.items(), key=lambda item: -item[1]):
        if age / least_ttl_s <= worst[0] / worst[1]:
            break
        worst = max(worst, (age, ttl_of(node_id)), key=lambda pair: pair[0] / pair[1])
    return worst


_BETWEEN_SLICES_S = 0.25
"""So that what lags after a start takes a tenth of a core, and not all of it."""

_ALONE_ROUNDS = 6
"""A server without others on its store writes down whose agents have spoken every so many times."""

_REFRESHING_SHARE = 0.02
"""Of a core, what keeping up with new fingerprints may take, as far as this pause allows."""

_LONGEST_PAUSE_S = 2.0

_JUMP_S = 2.0

_RETENTION_PAUSE = 4.0
"""Between two turns of retention while something is left, in turns: it has a fifth of the time."""

_LONGEST_LAG_S = 86_400.0
"""Seconds that retention may be behind until the log says so."""


def _still(state: SharedState, resident: Resident) -> bool:
    try:
        return state.book.get(resident.assignment_id) == resident
    except KongmingError:
        # Forgotten, since it ended long ago: what was not kept is kept now.
        return True
