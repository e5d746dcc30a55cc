"""The HTTP side of the server: the same gate, the same servicer and the same messages as gRPC.

GET  /metrics        Prometheus
GET  /healthz        200 while the process answers, 503 where it is to be started again
GET  /readyz         200 once it can predict, else 503 with the reason
GET  /watcher        how loaded nodes are, as Trimaran's load watcher tells it
POST /v1/predict     PredictRequest as JSON -> PredictResponse
POST /v1/rank        RankNodesRequest as JSON -> RankNodesResponse
GET  /openapi.json   all of that for programs
GET  /docs           all of that for people
"""

from __future__ import annotations

import asyncio
import html
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Protocol

from aiohttp import web
from google.protobuf.message import Message

from kongming.records.errors import UnknownNameError
from kongming.records.node_load import NodeLoad
from kongming.rpc.connections import Connections
from kongming.rpc.listener import peer_of
from kongming.rpc.v1 import predictor_pb2
from kongming.sensors import load_watcher
from kongming_server.calls.interceptors import check_batch
from kongming_server.calls.request_ids import request_id_of
from kongming_server.http import docs_page, openapi
from kongming_server.http.answers import (
    error_answer,
    json_answer,
    json_bytes,
    not_served,
    refuse_foreign_host,
)
from kongming_server.http.bodies import message_answer, message_of, read_body
from kongming_server.http.context import HttpContext
from kongming_server.monitoring.metrics import Metrics
from kongming_server.monitoring.node_loads import WINDOW_S, Watched
from kongming_server.security.admission import Call, Guard, Ticket, current_call

__all__ = ["Predictor", "make_http"]

TIMEOUT_S = 30.0
"""A question that is not answered in this time is given up."""

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
Why = Callable[[], str | None]
_TICKET = web.RequestKey("kongming_ticket", Ticket)


class Predictor(Protocol):
    """Methods of the Predictor servicer that are mirrored."""

    async def Predict(self, request: Any, context: Any) -> Any: ...  # noqa: N802
    async def RankNodes(self, request: Any, context: Any) -> Any: ...  # noqa: N802


class _NoNodes:
    async def refresh(self) -> None:
        pass

    async def windows(self) -> Sequence[NodeLoad]:
        return ()


def make_http(
    predictor: Predictor,
    metrics: Metrics,
    guard: Guard,
    *,
    watched: Watched | None = None,
    ready: Why = lambda: None,
    degraded: Why = lambda: None,
    stuck: Why = lambda: None,
    connections: Connections | None = None,
) -> web.Application:
    """The application to serve. ``ready`` returns None, or why the server cannot answer yet;
    ``degraded`` None, or what it cannot do though it answers; ``stuck`` None, or why it is to be
    started again; ``connections`` is called with which of them are in use."""
    known = Connections() if connections is None else connections
    fleet = _NoNodes() if watched is None else watched
    app = web.Application(
        client_max_size=guard.limits.json_bytes, middlewares=[_gate(guard, known)]
    )
    document = openapi.document()
    # Written once, with the mark of what the address of each reader takes the place of.
    page = docs_page.page(document, openapi.ERRORS, _ADDRESS)

    async def metrics_text(request: web.Request) -> web.Response:
        await fleet.refresh()
        body, content_type = await metrics.text()
        return web.Response(body=body, headers={"Content-Type": content_type})

    async def healthz(request: web.Request) -> web.Response:
        reason = stuck()
        if reason is None:
            return json_answer({"alive": True})
        return json_answer({"alive": False, "reason": reason}, status=503)

    async def readyz(request: web.Request) -> web.Response:
        reason = ready()
        if reason is None:
            trouble = degraded()
            more = {} if trouble is None else {"degraded": True, "reason": trouble}
            return json_answer({"ready": True} | more)
        return json_answer({"ready": False, "reason": reason}, status=503)

    # Of a large fleet it takes a tenth of a second to write, and may be anybody's to ask for.
    written: tuple[Sequence[NodeLoad], bytes] | None = None

    async def watcher(request: web.Request) -> web.Response:
        nonlocal written
        loads = await fleet.windows()
        host = request.query.get("host")
        if host is not None:
            read = {load.name: load for load in loads if load.windows}
            if host not in read:
                hint = "Only nodes with readings are listed."
                raise UnknownNameError("node", host, read, hint=hint)
            selected = [read[host]]
            return json_answer(load_watcher.document(selected, time.time(), WINDOW_S))
        if written is None or written[0] is not loads:
            written = (loads, await asyncio.to_thread(_watched, loads))
        return web.Response(body=written[1], content_type="application/json")

    async def openapi_json(request: web.Request) -> web.Response:
        return json_answer(document)

    async def docs(request: web.Request) -> web.Response:
        url = html.escape(f"{request.scheme}://{request.host}")
        text = page.replace(_ADDRESS, url)
        return web.Response(text=text, content_type="text/html", headers=_PAGE_HEADERS)

    app.router.add_get("/metrics", metrics_text)
    app.router.add_get("/healthz", healthz)
    app.router.add_get("/readyz", readyz)
    app.router.add_get("/watcher", watcher)
    app.router.add_get("/watcher/health", readyz)
    app.router.add_get("/openapi.json", openapi_json)
    app.router.add_get("/docs", docs)
    app.router.add_post(
        "/v1/predict", _mirror(predictor.Predict, predictor_pb2.PredictRequest, guard)
    )
    app.router.add_post(
        "/v1/rank", _mirror(predictor.RankNodes, predictor_pb2.RankNodesRequest, guard)
    )
    return app


_METHODS: Mapping[str, str] = {
    "POST /v1/predict": "/kongming.rpc.v1.Predictor/Predict",
    "POST /v1/rank": "/kongming.rpc.v1.Predictor/RankNodes",
}
"""The gRPC method whose permissions a path has; the others stand for themselves."""

_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-store",
    "Referrer-Policy": "no-referrer",
}
_HELD_BYTES = 4096
"""A body that is smaller may wait with its refusal."""

_LARGE_BYTES = 64 << 10

_ADDRESS = "http://SERVER"
_PAGE_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; "
    "frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
}


def _mirror(
    behaviour: Callable[[Any, Any], Awaitable[Message]], kind: type[Message], guard: Guard
) -> Handler:
    async def answer(request: web.Request) -> web.StreamResponse:
        body = await read_body(request)
        # A place is taken by what can be worked on, not by what is still to arrive.
        guard.begin(request[_TICKET])
        message = await message_of(body, kind, guard.limits.batch)
        del body
        message.request_id = request_id_of(message.request_id)  # type: ignore[attr-defined]
        check_batch(message, guard.limits)
        call = current_call.get()
        if call is not None:
            current_call.set(Call(call.method, message.request_id, call.caller))  # type: ignore[attr-defined]
        async with asyncio.timeout(TIMEOUT_S):
            answered = await behaviour(message, HttpContext(request))
        return await message_answer(answered)

    return answer


def _gate(guard: Guard, connections: Connections) -> Any:
    """Admission, errors, counting and headers around every request."""

    @web.middleware
    async def through(request: web.Request, handler: Handler) -> web.StreamResponse:
        begun = time.perf_counter()
        resource = request.match_info.route.resource
        # HEAD is answered by what answers GET, and allowed to the same.
        method = "GET" if request.method == "HEAD" else request.method
        path = None if resource is None else f"{method} {resource.canonical}"
        ticket: Ticket | None = None
        sent: asyncio.Future[None] | None = None
        peer = peer_of(request.transport)
        connections.begin(peer)

        def left(code: str) -> None:
            connections.end(peer)
            if ticket is not None:
                guard.leave(ticket)
            label = path or "other"
            guard.metrics.rpc_seconds.labels(label).observe(time.perf_counter() - begun)
            guard.metrics.rpcs.labels(label, code).inc()

        try:
            if guard.open and not guard.security.insecure:
                refuse_foreign_host(request.host)
            if path is None:
                # Also what cannot be found is counted against the peer's rate.
                ticket = guard.admit("GET /docs", peer)
                raise not_served(request)
            method = _METHODS.get(path, path)
            ticket = guard.admit(method, peer, _authorization(request), _certificate(request))
            request[_TICKET] = ticket
            if ticket.caller.identified:
                connections.trust(peer)
            current_call.set(Call(method, request_id_of(""), ticket.caller))
            answered = await handler(request)
            sent = _begin_answer(guard, ticket, peer, answered)
        except Exception as error:
            answered, code = error_answer(error)
            if answered.status == 401 and guard.security.client_ca:
                # A certificate, or a renewed one, is shown on the next connection only.
                answered.force_close()
            # Over for all that counts and measures calls, before a refusal that waits.
            left(code)
            # What still arrives of a body is kept meanwhile.
            if not request.can_read_body or (request.content_length or _HELD_BYTES) < _HELD_BYTES:
                await guard.refusals.hold(error, peer)
        except BaseException:
            left("CANCELLED")
            raise
        else:
            left("OK" if answered.status < 400 else "UNAVAILABLE")
        answered.headers.update(_HEADERS)
        if sent is not None:
            try:
                # Who leaves meanwhile is no failure of the server; aiohttp notices by itself.
                with suppress(ConnectionError):
                    await answered.prepare(request)
                    await answered.write_eof()
            finally:
                sent.cancel()
        return answered

    return through


def _begin_answer(
    guard: Guard, ticket: Ticket, peer: str, answered: web.StreamResponse
) -> asyncio.Future[None] | None:
    """Return a future that is done once a large answer has been sent; what is small lies with the
    system at once. A connection that waits with it counts as idle. Raises OverloadedError."""
    body = answered.body if isinstance(answered, web.Response) else None
    size = len(body) if isinstance(body, bytes) else 0
    if size < _LARGE_BYTES or not ticket.caller.identified:
        return None
    sent = asyncio.get_running_loop().create_future()
    guard.begin_answer(ticket, peer, sent, size)
    return sent


def _authorization(request: web.Request) -> str | None:
    shown = request.headers.getall("Authorization", [])
    # Two are none (RFC 9110, 5.2: they are one list), which the guard is to count.
    return ", ".join(shown[:2]) if shown else None


def _certificate(request: web.Request) -> bytes | None:
    transport = request.transport
    tls = None if transport is None else transport.get_extra_info("ssl_object")
    shown = None if tls is None else tls.getpeercert(binary_form=True)
    return shown if isinstance(shown, bytes) else None


def _watched(loads: Sequence[NodeLoad]) -> bytes:
    return json_bytes(load_watcher.document(loads, time.time(), WINDOW_S))
