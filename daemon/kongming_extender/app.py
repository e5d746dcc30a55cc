"""The extender's parts, started and stopped together, behind HTTP.

POST /filter       ExtenderArgs -> ExtenderFilterResult
POST /prioritize   ExtenderArgs -> HostPriorityList
GET  /explain      the last answer to filter for ?pod=NAMESPACE/NAME, with its numbers
GET  /healthz      200 while the process answers
GET  /readyz       200 once pods and nodes were listed, or could not be; says what is away
GET  /metrics      Prometheus
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import time
from collections.abc import Awaitable, Callable
from typing import Any

import orjson
from aiohttp import web
from kongming_scheduling.async_client import AsyncClient
from kongming_scheduling.ranking_cache import RankingCache

from kongming.addresses import split_address
from kongming.records.errors import AccessError, InputError, KongmingError
from kongming.rpc.channel import connection_from_settings
from kongming.rpc.connections import Connections
from kongming.rpc.listener import Listener, connections_allowed, peer_of
from kongming_extender import tls
from kongming_extender.extender_config import Config
from kongming_extender.handlers import Handlers
from kongming_extender.metrics import Metrics
from kongming_extender.pod_state import PodState
from kongming_extender.pod_watch import PodWatch
from kongming_extender.protocol import (
    ExtenderArgs,
    error_result,
    filter_result,
    priority_list,
    read_args,
)
from kongming_extender.sync import AssignmentSync

log = logging.getLogger(__name__)

_MOST_CONNECTIONS = 256
_MOST_OF_ONE_ADDRESS = 64
"""Connections to its port. A scheduler has a few; whoever else comes has no more than these, of
which the oldest make room."""

_IDLE_S = 30.0

_READY_S = 10.0
"""It is ready after so long, whether pods and nodes could be listed or not."""


class App:
    """``await start()``, and ``await stop()``."""

    def __init__(self, config: Config, *, idle_s: float = _IDLE_S) -> None:
        """Connections end that for ``idle_s`` asked nothing, or did not finish their request; not
        those of a scheduler, which keeps its own between two pods.

        Raises:
            InputError: a file or an address cannot be used.
        """
        self._idle_s = idle_s
        self.config = config
        self.metrics = Metrics()
        self.pods = PodState()
        self.client = AsyncClient(
            lambda: connection_from_settings(config.server, config.server.deadline_s),
            config.server.pause_s,
            self.metrics.observe_call,
        )
        self.rankings = RankingCache(self.client, config.ranking)
        self.metrics.rankings.set_function(lambda: len(self.rankings))
        self.metrics.nodes.set_function(lambda: self.rankings.node_count)
        self.sync = AssignmentSync(
            self.pods, self.client, self.rankings, config.assignments, self.metrics
        )
        self._handlers = Handlers(self.rankings, self.pods, self.sync, config, self.metrics)
        self._watch: PodWatch | None = None
        if config.pods.watch:
            self._watch = PodWatch(config.pods, self.metrics, self.sync)
        self._tls = tls.context(config.security)
        self._tasks: list[asyncio.Task[None]] = []
        self._runner: web.AppRunner | None = None
        self._listener: Listener | None = None
        self._connections = Connections(
            most=connections_allowed(_MOST_CONNECTIONS),
            per_address=_MOST_OF_ONE_ADDRESS,
            idle_s=idle_s,
            spare_trusted=True,
        )
        self._ready = False

    async def start(self) -> str:
        """Listen, and return the address. Raises KongmingError where it cannot be bound."""
        app = web.Application(
            client_max_size=self.config.extender.body_bytes, middlewares=[self._counted]
        )
        app.router.add_post("/filter", self._verb("filter", self._handlers.filter, _all_pass))
        app.router.add_post(
            "/prioritize", self._verb("prioritize", self._handlers.prioritize, _all_equal)
        )
        app.router.add_get("/explain", self._explain)
        app.router.add_get("/healthz", _healthz)
        app.router.add_get("/readyz", self._readyz)
        app.router.add_get("/metrics", self._metrics_text)
        self._runner = web.AppRunner(
            app,
            access_log=None,
            # aiohttp waits for so long twice before it cancels what is at work.
            shutdown_timeout=self.config.extender.grace_s / 2,
            # The scheduler keeps its connection: it must not be closed between two pods.
            keepalive_timeout=3600.0,
        )
        await self._runner.setup()
        host, port = split_address(self.config.extender.listen, "extender.listen")
        server = self._runner.server
        assert server is not None
        listener = Listener(server, self._connections, tls=self._tls, idle_s=self._idle_s)
        try:
            await listener.start(host, port)
        except OSError as error:
            raise KongmingError(
                f"Cannot listen on {self.config.extender.listen}: {error.strerror}."
            ) from error
        self._listener = listener
        self._tasks = [
            asyncio.create_task(self._list_nodes_often(), name="nodes"),
            asyncio.create_task(self.sync.run(), name="assignments"),
        ]
        if self._watch is not None:
            self._tasks.append(asyncio.create_task(self._watch.run(), name="pods"))
        for task in self._tasks:
            task.add_done_callback(_log_failure)
        return f"[{host}]:{listener.port}" if ":" in host else f"{host}:{listener.port}"

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._listener is not None:
            await self._listener.close()
        if self._runner is not None:
            await self._runner.cleanup()
        await self.sync.close()
        await self.rankings.close()
        await self.client.close()

    @web.middleware
    async def _counted(
        self,
        request: web.Request,
        handler: Callable[[web.Request], Awaitable[web.StreamResponse]],
    ) -> web.StreamResponse:
        """The connection is in use meanwhile."""
        peer = peer_of(request.transport)
        self._connections.begin(peer)
        try:
            return await handler(request)
        finally:
            self._connections.end(peer)

    async def _list_nodes_often(self) -> None:
        """Readiness does not wait for a server that is away: all nodes pass then."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_READY_S):
                if self._watch is not None:
                    await self._watch.attempted.wait()
                await self._list_nodes()
        # What is there now stays: the collector need not scan it during requests.
        gc.collect()
        gc.freeze()
        self._ready = True
        while True:
            await asyncio.sleep(self.config.ranking.fleet_s)
            await self._list_nodes()

    async def _list_nodes(self) -> None:
        try:
            await self.rankings.list_nodes()
        except (KongmingError, TimeoutError) as error:
            log.warning("The server's nodes cannot be listed: %s", error)

    def _verb(
        self,
        verb: str,
        respond: Callable[[ExtenderArgs], Awaitable[bytes]],
        fallback: Callable[[ExtenderArgs], bytes],
    ) -> Callable[[web.Request], Awaitable[web.Response]]:
        async def handle(request: web.Request) -> web.Response:
            forbidden = self._forbidden(request)
            if forbidden is not None:
                return forbidden
            try:
                async with asyncio.timeout(self._idle_s):
                    body = await request.read()
            except TimeoutError:
                self.metrics.requests.labels(verb, "refused").inc()
                late = _refused(InputError("The request did not come to its end."), 408)
                late.force_close()
                return late
            # One that sends no whole request is not spared.
            self._connections.trust(peer_of(request.transport))
            begun = time.perf_counter()
            try:
                args = read_args(body)
            except InputError as error:
                self.metrics.requests.labels(verb, "refused").inc()
                return _refused(error, 400)
            try:
                response = await respond(args)
            except Exception:
                # Nothing here may keep a pod from being scheduled.
                log.exception("Unexpected error: all nodes pass.")
                self.metrics.failed_open.labels("fault").inc()
                self.metrics.requests.labels(verb, "open").inc()
                response = fallback(args)
            self.metrics.request_seconds.labels(verb).observe(time.perf_counter() - begun)
            return web.Response(body=response, content_type="application/json")

        return handle

    def _forbidden(self, request: web.Request) -> web.Response | None:
        try:
            tls.check_caller(self.config.security, _certificate(request), time.time())
        except AccessError as error:
            refused = _refused(error, 401 if error.reason == "unauthenticated" else 403)
            # A renewed certificate is shown on the next connection only.
            refused.force_close()
            return refused
        return None

    async def _explain(self, request: web.Request) -> web.Response:
        """Explain to those alone who may filter, as it shows which pods run where."""
        forbidden = self._forbidden(request)
        if forbidden is not None:
            return forbidden
        pod = request.query.get("pod", "")
        answer = self._handlers.answers.get(pod)
        if answer is None:
            message = f"No answer for the pod {pod!r} is remembered here."
            return web.json_response({"error": message}, status=404)
        return web.Response(
            body=orjson.dumps(answer.document(self.config.ranking.steep)),
            content_type="application/json",
        )

    async def _readyz(self, request: web.Request) -> web.Response:
        state = {
            "ready": self._ready,
            "server": "away" if self.client.away or not self.rankings.nodes_listed else "answers",
            "watch": "off" if self._watch is None else self._watch.state,
            "pods": len(self.pods),
        }
        return web.Response(
            body=orjson.dumps(state),
            status=200 if self._ready else 503,
            content_type="application/json",
        )

    async def _metrics_text(self, request: web.Request) -> web.Response:
        body, content_type = self.metrics.text()
        return web.Response(body=body, headers={"Content-Type": content_type})


async def _healthz(request: web.Request) -> web.Response:
    return web.Response(body=b'{"alive":true}', content_type="application/json")


def _all_pass(args: ExtenderArgs) -> bytes:
    return filter_result(args, {})


def _all_equal(args: ExtenderArgs) -> bytes:
    return priority_list(args.names, [0] * len(args.names))


def _refused(error: KongmingError, status: int) -> web.Response:
    return web.Response(
        body=error_result(str(error)), status=status, content_type="application/json"
    )


def _certificate(request: web.Request) -> Any:
    transport = request.transport
    tls_object = None if transport is None else transport.get_extra_info("ssl_object")
    return None if tls_object is None else tls_object.getpeercert()


def _log_failure(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and task.exception() is not None:
        log.error("The task %s has failed.", task.get_name(), exc_info=task.exception())
