"""Assemble, start and stop one server."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack
from typing import Any, NamedTuple

import grpc
from grpc_health.v1 import health, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

# Loaded here, because the first question about a job must not wait for SciPy.
import kongming.scale.decide.combination  # noqa: F401
from kongming.addresses import split_address
from kongming.engine.engine import Engine
from kongming.engine.settings import Settings
from kongming.processes.systemd import Notifier
from kongming.rpc.connections import Connections
from kongming.rpc.listener import connections_allowed
from kongming.rpc.v1 import (
    assignments_pb2,
    assignments_pb2_grpc,
    fleet_pb2,
    fleet_pb2_grpc,
    predictor_pb2,
    predictor_pb2_grpc,
    profiles_pb2,
    profiles_pb2_grpc,
)
from kongming.store import Change, Store, default_url
from kongming.store.integrity import check_file, refuse_empty_file, serve_alone
from kongming_server.calls.interceptors import interceptors, server_options
from kongming_server.configuration.settings import Config
from kongming_server.configuration.settings import Server as ServerSettings
from kongming_server.http.app import make_http
from kongming_server.http.serving import serve
from kongming_server.ingest.write import Ingest
from kongming_server.monitoring.metrics import Metrics
from kongming_server.monitoring.node_loads import NodeLoads
from kongming_server.monitoring.otel import Pusher
from kongming_server.nodes.ownership import Ownership, TokensNow
from kongming_server.ports import cannot_listen, check_ports
from kongming_server.quality.closed_loop import ClosedLoop
from kongming_server.restore import READ_AGAIN, Restore
from kongming_server.running import garbage_collection as garbage
from kongming_server.running.clock import SteadyClock
from kongming_server.running.outage import Outage
from kongming_server.running.supervision import TICK_S, Supervisor
from kongming_server.security import Guard, TokenBook, check_bind
from kongming_server.security.credentials import add_port, http_ssl
from kongming_server.security.flood_watch import FloodWatch
from kongming_server.security.sockets import watch_port
from kongming_server.services.assignments import AssignmentsService
from kongming_server.services.counted import CountedPredictor
from kongming_server.services.fleet import FleetService
from kongming_server.services.health import HealthService
from kongming_server.services.node_access import NodeAccess
from kongming_server.services.profiles import ProfilesService
from kongming_server.state import SharedState
from kongming_server.training.queue import Training
from kongming_server.upkeep import Every, Upkeep

log = logging.getLogger(__name__)

SERVICES = tuple(
    file.DESCRIPTOR.services_by_name[name].full_name
    for file, name in (
        (predictor_pb2, "Predictor"),
        (fleet_pb2, "Fleet"),
        (profiles_pb2, "Profiles"),
        (assignments_pb2, "Assignments"),
    )
)


class Addresses(NamedTuple):
    """Addresses at which the server listens, as HOST:PORT; ``http`` empty for nowhere."""

    grpc: str
    http: str


class App:
    """``await start()``, then ``await stop()``: in between it serves."""

    def __init__(
        self,
        config: Config,
        clock: SteadyClock | None = None,
        notifier: Notifier | None = None,
    ) -> None:
        check_bind(config.server.listen, config.security, "server.listen")
        if config.server.http:
            check_bind(config.server.http, config.security, "server.http")
        self._config = config
        self._clock = clock if clock is not None else SteadyClock()
        self._notifier = Notifier({}) if notifier is None else notifier
        self._executor = ThreadPoolExecutor(4, thread_name_prefix="kongming-store")
        # Of its own, so that reports never wait behind questions to the store, nor these for them.
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="kongming-ingest")
        self._metrics = Metrics()
        self._outage = Outage()
        self._every = Every()
        self._health = HealthService(SERVICES)
        self._undo = AsyncExitStack()
        self._grace_s = config.server.grace_s
        self._why_not_ready: str | None = "The server is starting."
        self._supervisor = Supervisor(stuck_s=config.server.stuck_s)
        self._stuck: str | None = None

    async def start(self) -> Addresses:
        """Open the store, restore what is in it, and listen.

        Raises:
            KongmingError: the store cannot be opened, or nothing can listen on an address.
        """
        try:
            return await self._start()
        except BaseException:
            self._grace_s = 0.0
            await self.stop()
            raise

    async def stop(self) -> None:
        """Take no more calls, let those under way end, keep what they brought, close the store."""
        self._why_not_ready = "The server is about to end."
        try:
            await self._undo.aclose()
        finally:
            self._executor.shutdown()
            self._writer.shutdown()

    async def _start(self) -> Addresses:
        config, undo = self._config, self._undo
        loop = asyncio.get_running_loop()
        # Before a store is made that nobody would serve from.
        await check_ports(config)
        url = config.server.store_url() or default_url()
        store = await loop.run_in_executor(self._executor, lambda: _open(url, config.server))
        undo.callback(store.close)
        tokens = TokenBook(store.tokens)
        await tokens.refresh()
        settings = Settings(
            ttl_s=config.fleet.fingerprint_ttl_s, silent_after_s=config.fleet.silent_after_s
        )
        engine = Engine(settings)
        state = SharedState(
            *(config, store, self._executor, engine, self._clock, self._metrics, settings),
            outage=self._outage,
            supervisor=self._supervisor,
        )
        restore = Restore(state)
        self._undo.push_async_callback(restore.close)
        since = await restore.everything()
        if store.is_new or not (len(state.agents) or restore.models_in_service or len(tokens)):
            log.warning(
                "The store %s is %s: it knows no node, no model and no token.",
                store.url,
                "new" if store.is_new else "empty",
            )

        training, closed_loop, ingest = await self._start_work(url, state)
        await self._look_after(state, ingest, tokens, restore, since)
        addresses = await self._listen(state, tokens, training, closed_loop, ingest)
        self._health.tell(serving=True)
        self._why_not_ready = None
        return addresses

    async def _start_work(
        self, url: str, state: SharedState
    ) -> tuple[Training, ClosedLoop, Ingest]:
        """Start what trains, what judges models, and what stores reports."""
        config, undo = self._config, self._undo
        training = Training(
            url,
            state.engine,
            config.training,
            metrics=self._metrics,
            now=state.now,
        )
        undo.push_async_callback(training.close)
        await training.start()
        closed_loop = ClosedLoop(
            state.store,
            state.engine,
            config.closed_loop,
            training,
            state.profile_requests,
            metrics=self._metrics,
            now=state.now,
            working=self._supervisor.working,
        )
        undo.push_async_callback(closed_loop.close)
        await closed_loop.start()
        ingest = Ingest(
            state.store,
            self._writer,
            state.use_report,
            batch_records=config.ingest.batch_records,
            queue_records=config.ingest.queue_records,
            queue_wait_s=config.ingest.queue_wait_s,
            queue_bytes=config.ingest.queue_bytes,
            gather_s=config.ingest.gather_s,
            observe=self._observe,
            working=self._supervisor.working,
        )
        undo.push_async_callback(ingest.close)
        ingest.start(lambda work: self._supervisor.keep("Writing reports", work))
        return training, closed_loop, ingest

    async def _listen(
        self,
        state: SharedState,
        tokens: TokenBook,
        training: Training,
        closed_loop: ClosedLoop,
        ingest: Ingest,
    ) -> Addresses:
        """Answer over gRPC, and over HTTP where an address is given."""
        config, undo = self._config, self._undo
        guard = Guard(
            config.security,
            config.limits,
            metrics=self._metrics,
            tokens=tokens,
            quotas=config.quotas,
        )
        allowed = connections_allowed(config.limits.connections)
        # Schedulers and people ask over HTTP, and every node over gRPC.
        over_http = allowed // 4 if config.server.http else 0
        most_grpc = allowed - over_http
        over_grpc = self._connections(max(1, most_grpc - _JOINING), spare_trusted=True)
        encrypted = bool(config.security.certificate)
        floods = FloodWatch(over_grpc, self._supervisor.working, tls=encrypted)
        loads = NodeLoads(state.engine, state.now, self._metrics, config.series)
        if config.otel.endpoint:
            pusher = Pusher(config.otel, self._metrics, loads.refresh)
            undo.push_async_callback(pusher.close)
            self._every.start("Pushing metrics", config.otel.period_s, pusher.push)
        predictor = CountedPredictor(state.engine, state.now, self._metrics, state.agents.id_of)
        access = NodeAccess(state, Ownership(TokensNow(tokens, time.time)))
        assignments = AssignmentsService(state, closed_loop, access)
        server = grpc.aio.server(
            interceptors=interceptors(guard, over_grpc, self._supervisor.working, floods.report),
            # More than are kept: whoever comes when all places are taken takes one of a stranger.
            options=server_options(config.limits, connections=most_grpc),
        )
        predictor_pb2_grpc.add_PredictorServicer_to_server(predictor, server)
        assignments_pb2_grpc.add_AssignmentsServicer_to_server(assignments, server)
        fleet = FleetService(state, ingest, closed_loop, assignments, access)
        fleet_pb2_grpc.add_FleetServicer_to_server(fleet, server)
        profiles = ProfilesService(state.store, state.engine, training, closed_loop)
        profiles_pb2_grpc.add_ProfilesServicer_to_server(profiles, server)
        health_pb2_grpc.add_HealthServicer_to_server(self._health, server)
        reflection.enable_server_reflection(
            (*SERVICES, health.SERVICE_NAME, reflection.SERVICE_NAME), server
        )
        host, _ = split_address(config.server.listen, "server.listen")
        port = add_port(server, config.server.listen, config.security)
        watching = self._supervisor.keep(
            "Watching connections",
            lambda: watch_port(
                port, over_grpc, config.limits.idle_s, stalled=guard.unread_answers.stalled
            ),
        )
        undo.callback(watching.cancel)
        floods.start(port)
        undo.push_async_callback(asyncio.to_thread, floods.close)

        http_ports = AsyncExitStack()

        async def drain() -> None:
            state.end()
            self._health.end()
            # At the same time: both ports have one grace.
            await all_ended(server.stop(self._grace_s), http_ports.aclose())

        undo.push_async_callback(drain)
        await server.start()
        http = ""
        if config.server.http:
            known = self._connections(over_http)
            http = await self._serve_http(http_ports, predictor, guard, loads, known)
        return Addresses(_address(host, port), http)

    def _not_ready(self) -> str | None:
        return self._why_not_ready or self._supervisor.failing or self._supervisor.stuck

    async def _look_after_threads(self) -> None:
        """Tell who looks after the server, once a ``TICK_S``, that nothing is stuck."""
        self._supervisor.tick()
        stuck = self._supervisor.stuck
        if stuck is None and self._notifier.watchdog_s is not None:
            self._notifier.alive()
        if (stuck is None) == (self._stuck is None):
            return
        self._stuck = stuck
        if stuck is None:
            log.warning("What was stuck has ended.")
        else:
            log.error("%s The server should be started again.", stuck)
        if self._why_not_ready is None:
            self._health.tell(serving=stuck is None)

    def _observe(self, seconds: float, failed: Exception | None) -> None:
        self._metrics.store_seconds.labels("report").observe(seconds)
        if failed is None:
            self._outage.succeeded()
        else:
            self._metrics.store_errors.inc()
            self._outage.failed(failed)

    async def _look_after(
        self, state: SharedState, ingest: Ingest, tokens: TokenBook, restore: Restore, since: int
    ) -> None:
        """Start what the server does without being asked."""
        config, every = self._config, self._every
        upkeep = Upkeep(state, ingest, self._metrics)
        self._metrics.ready.set_function(lambda: float(self._not_ready() is None))
        self._metrics.ingest_limit.set(config.ingest.queue_records)
        self._metrics.models.set_function(lambda: float(restore.models_in_service))
        self._metrics.matrix_cells.set_function(
            lambda: float(restore.models_in_service * sum(agent.domains for agent in state.agents))
        )
        # Once more at the very end, so that the next start knows who was heard of.
        self._undo.push_async_callback(upkeep.spread)
        self._undo.push_async_callback(every.stop)
        # Before the first question comes.
        await upkeep.refresh()
        every.start("Refreshing predictions", 1.0, upkeep.keep_up)
        every.start("Looking after threads", TICK_S, self._look_after_threads)
        every.start("Following the clock", 1.0, upkeep.follow_clock)
        every.start("Ending reservations", 1.0, upkeep.expire)
        every.start("Noticing silent nodes", 1.0, upkeep.notice_silence)
        every.start("Telling who was heard of", config.fleet.spread_period_s, upkeep.spread_if_due)
        every.start("Thinning the store", config.retention.period_s, upkeep.thin)
        every.start("Counting nodes", 5.0, upkeep.count)
        every.start("Collecting garbage", garbage.COLLECTING_S, garbage.collect)
        garbage.tune()
        await self._watch(state, restore, since)
        learning = asyncio.create_task(restore.history(), name="Reading older fingerprints")
        self._undo.callback(learning.cancel)
        fresh = self._supervisor.keep(
            "Reading tokens",
            lambda: tokens.keep_fresh(config.security.tokens_period_s, self._supervisor.working),
        )
        self._undo.callback(fresh.cancel)

    async def _watch(self, state: SharedState, restore: Restore, since: int) -> None:
        """Take over what other servers change, from the change ``since`` on."""
        loop = asyncio.get_running_loop()

        def changed(changes: Sequence[Change]) -> None:
            # On the watch's own thread, which waits: the next changes come when these are in.
            others = [change for change in changes if not restore.is_own(change)]
            if others:
                with self._supervisor.working("Taking over changes of other servers"):
                    asyncio.run_coroutine_threadsafe(restore.changes(others), loop).result()
                self._metrics.change_lag.set(max(0.0, time.time() - others[0].changed_at))

        watch = await state.stored(
            lambda: state.store.watch_changes(changed, after=since, own=READ_AGAIN)
        )
        # Not on the event loop: closing waits for a turn that may wait for the event loop.
        self._undo.push_async_callback(asyncio.to_thread, watch.close)

    def _connections(self, most: int, *, spare_trusted: bool = False) -> Connections:
        limits = self._config.limits
        return Connections(
            most=most,
            per_address=limits.connections_per_address,
            idle_s=limits.idle_s,
            spare_trusted=spare_trusted,
        )

    async def _serve_http(
        self,
        undo: AsyncExitStack,
        predictor: CountedPredictor,
        guard: Guard,
        loads: NodeLoads,
        connections: Connections,
    ) -> str:
        config = self._config
        host, port = split_address(config.server.http, "server.http")
        app = make_http(
            predictor,
            self._metrics,
            guard,
            watched=loads,
            ready=self._not_ready,
            degraded=lambda: self._outage.reason,
            stuck=lambda: self._supervisor.stuck,
            connections=connections,
        )
        try:
            taken = await serve(
                app,
                undo,
                connections,
                (host, port),
                tls=http_ssl(config.security),
                idle_s=config.limits.idle_s,
                grace_s=self._grace_s,
            )
        except OSError as error:
            raise cannot_listen("server.http", config.server.http, error) from error
        return _address(host, taken)


_JOINING = 16
"""Places for connections to gRPC while as many without a known caller are being ended."""


async def all_ended(*endings: Coroutine[Any, Any, None]) -> None:
    """Wait until each has ended, and raise what the first of those that failed has raised: what
    follows takes away what the others still need."""
    ended = await asyncio.gather(*endings, return_exceptions=True)
    for error in ended:
        if error is not None:
            raise error


def _open(url: str, settings: ServerSettings) -> Store:
    """Raises StoreError where it is not to be served from."""
    if not settings.new_store:
        refuse_empty_file(url)
    store = Store.open(
        url, statement_s=settings.statement_timeout_s, lock_s=settings.lock_timeout_s
    )
    try:
        serve_alone(store)
        if settings.check_store_s > 0.0 and not check_file(store, settings.check_store_s):
            log.warning(
                "The store %s was checked for %g s, and not to its end.",
                store.url,
                settings.check_store_s,
            )
    except BaseException:
        store.close()
        raise
    return store


def _address(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
