"""The extender's parts, started and stopped together, behind HTTP.

POST /filter       ExtenderArgs -> ExtenderFilterResult
POST /prioritize   ExtenderArgs -> HostPriorityList
GET  /healthz      200 while the process answers
GET  /readyz       200 once pods and server were looked for, found or not
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

from kongming.errors import AccessError, InputError, KongmingError
from kongming.settings.bounded import split_address
from kongming_extender import tls
from kongming_extender.answering import Answerer
from kongming_extender.book import Book
from kongming_extender.config import Config
from kongming_extender.link import Link, connection
from kongming_extender.metrics import Metrics
from kongming_extender.protocol import Args, failure, filter_result, priority_list, read_args
from kongming_extender.rankings import Rankings
from kongming_extender.telling import Teller
from kongming_extender.watching import PodWatch

log = logging.getLogger(__name__)

_FIRST_LOOK_S = 10.0
"""It is ready after so long, whether pods and server could be reached or not."""


class App:
    """``await start()``, and ``stop()``. ``metrics`` are its own."""

    def __init__(self, config: Config) -> None:
        """Raises InputError where a file or an address is of no use."""
        connection(config.server)
        self.config = config
        self.metrics = Metrics()
        self.book = Book()
        self.link = Link(config.server, self.metrics)
        self.rankings = Rankings(self.link, config.ranking, self.metrics)
        self.teller = Teller(self.book, self.link, self.rankings, config.placements, self.metrics)
        self._answerer = Answerer(self.rankings, self.book, self.teller, config, self.metrics)
        self._watch: PodWatch | None = None
        if config.pods.watch:
            self._watch = PodWatch(
                config.pods,
                self.metrics,
                listed=self.teller.listed,
                changed=self.teller.changed,
                gone=self.teller.gone,
                again=self.teller.again,
            )
        self._tls = tls.context(config.security)
        self._tasks: list[asyncio.Task[None]] = []
        self._runner: web.AppRunner | None = None
        self._ready = False

    async def start(self) -> str:
        """Listen; returns the address. Raises KongmingError where it cannot be bound."""
        app = web.Application(client_max_size=self.config.extender.body_bytes)
        app.router.add_post("/filter", self._verb("filter", self._answerer.filter, _all_pass))
        app.router.add_post(
            "/prioritize", self._verb("prioritize", self._answerer.prioritize, _all_equal)
        )
        app.router.add_get("/healthz", _healthz)
        app.router.add_get("/readyz", self._readyz)
        app.router.add_get("/metrics", self._metrics_text)
        self._runner = web.AppRunner(
            app,
            access_log=None,
            shutdown_timeout=self.config.extender.grace_s,
            # The scheduler keeps its connection, and is not to find it closed between two pods.
            keepalive_timeout=3600.0,
        )
        await self._runner.setup()
        host, port = split_address(self.config.extender.listen, "extender.listen")
        try:
            await web.TCPSite(self._runner, host, port, ssl_context=self._tls).start()
        except OSError as error:
            raise KongmingError(
                f"{self.config.extender.listen} cannot be listened at: {error.strerror}."
            ) from error
        self._tasks = [
            asyncio.create_task(self._look(), name="first look"),
            asyncio.create_task(self.teller.run(), name="teller"),
        ]
        if self._watch is not None:
            self._tasks.append(asyncio.create_task(self._watch.run(), name="watch"))
        for task in self._tasks:
            task.add_done_callback(_tell_death)
        bound = self._runner.addresses[0]
        return f"[{bound[0]}]:{bound[1]}" if ":" in bound[0] else f"{bound[0]}:{bound[1]}"

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._runner is not None:
            await self._runner.cleanup()
        await self.teller.close()
        await self.rankings.close()
        await self.link.close()

    async def _look(self) -> None:
        """Readiness does not wait for a server that is away: answers are open then."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_FIRST_LOOK_S):
                if self._watch is not None:
                    await self._watch.tried.wait()
                await self._list_nodes()
        # What is there now stays: the collector need not look through it in the midst of answers.
        gc.collect()
        gc.freeze()
        self._ready = True
        while True:
            await asyncio.sleep(self.config.ranking.fleet_s)
            await self._list_nodes()

    async def _list_nodes(self) -> None:
        try:
            await self.rankings.names()
        except (KongmingError, TimeoutError) as error:
            log.warning("The server's nodes cannot be listed: %s", error)

    def _verb(
        self,
        verb: str,
        answer: Callable[[Args], Awaitable[bytes]],
        otherwise: Callable[[Args], bytes],
    ) -> Callable[[web.Request], Awaitable[web.Response]]:
        async def handle(request: web.Request) -> web.Response:
            try:
                tls.check_caller(self.config.security, _certificate(request))
            except AccessError as error:
                return _refused(error, 401 if error.reason == "unauthenticated" else 403)
            body = await request.read()
            begun = time.perf_counter()
            try:
                args = read_args(body)
            except InputError as error:
                self.metrics.requests.labels(verb, "refused").inc()
                return _refused(error, 400)
            try:
                made = await answer(args)
            except Exception:
                # Nothing here may keep a pod from being scheduled.
                log.exception("An error that was not foreseen: all nodes pass.")
                self.metrics.opened.labels("fault").inc()
                self.metrics.requests.labels(verb, "open").inc()
                made = otherwise(args)
            self.metrics.request_seconds.labels(verb).observe(time.perf_counter() - begun)
            return web.Response(body=made, content_type="application/json")

        return handle

    async def _readyz(self, request: web.Request) -> web.Response:
        state = {
            "ready": self._ready,
            "server": "away" if self.link.away or not self.rankings.known else "answers",
            "pods": len(self.book),
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


def _all_pass(args: Args) -> bytes:
    return filter_result(args, {})


def _all_equal(args: Args) -> bytes:
    return priority_list(args.names, [0] * len(args.names))


def _refused(error: KongmingError, status: int) -> web.Response:
    return web.Response(body=failure(str(error)), status=status, content_type="application/json")


def _certificate(request: web.Request) -> Any:
    transport = request.transport
    found = None if transport is None else transport.get_extra_info("ssl_object")
    return None if found is None else found.getpeercert()


def _tell_death(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and task.exception() is not None:
        log.error("The part %s has ended.", task.get_name(), exc_info=task.exception())
