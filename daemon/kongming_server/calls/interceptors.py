"""The interceptor of all gRPC calls: admission, request ids, and errors as statuses.

It is one interceptor, and a method is wrapped once: a chain of five, each looking the method up
for each call, costs more than a prediction.

Every request is served as a stream of bytes, which is the same on the wire: the caller is admitted
before the first of them is read, so that the message of a stranger stays in its sender.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import (
    AbstractContextManager,
    AsyncExitStack,
    asynccontextmanager,
    nullcontext,
)
from typing import TYPE_CHECKING, Any, NoReturn

import grpc

from kongming.records.errors import InputError, KongmingError
from kongming.rpc.connections import Connections
from kongming.rpc.v1 import predictor_pb2
from kongming_server.calls import call_errors, headers
from kongming_server.calls.decoding import OFF_LOOP_BYTES, Decoder
from kongming_server.calls.request_ids import REQUEST_ID_KEY, request_id_of
from kongming_server.configuration.limits import Limits
from kongming_server.running.supervision import Working, unwatched
from kongming_server.running.turns import Turns
from kongming_server.security.admission import Call, Caller, Guard, Ticket, current_call
from kongming_server.security.incoming_messages import Bound, IncomingMessages
from kongming_server.security.pacing import Pacing
from kongming_server.security.roles import PUBLIC, Role

IMPORT = "/kongming.rpc.v1.Profiles/ImportRuns"
"""The one method whose messages may be as large as ``limits.import_bytes``."""

_PUBLIC = "/grpc.health.v1.Health/List"

_OF_NAMES = PUBLIC | {"/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"}
_NAME_BYTES = 4096
"""The greatest message of methods that are asked for the name of a service, or of a part of one: a
stream keeps it for as long as its caller likes."""

if TYPE_CHECKING:  # Their types take parameters only for a checker.
    from kongming_server.calls.call_errors import Context

    Handler = grpc.RpcMethodHandler[Any, Any]


def interceptors(
    guard: Guard,
    connections: Connections | None = None,
    working: Working = unwatched,
    flooded: Callable[[str], None] = lambda peer: None,
) -> list[grpc.aio.ServerInterceptor]:
    """The interceptors of a grpc.aio server. ``connections`` is told who was admitted on each;
    ``working`` is around what a thread does; ``flooded`` is told of connections over which a call
    with too many headers came."""
    known = Connections() if connections is None else connections
    return [_Gate(guard, known, working, flooded)]


def server_options(limits: Limits, *, connections: int | None = None) -> list[tuple[str, Any]]:
    """Channel arguments of the server: sizes, streams of a connection, pings, and when one ends.

    ``connections`` is the most that are accepted, ``limits.connections`` by default.
    """
    idle_ms = round(limits.idle_s * 1000)
    return [
        ("grpc.max_receive_message_length", max(limits.message_bytes, limits.import_bytes)),
        ("grpc.max_send_message_length", -1),
        ("grpc.max_metadata_size", 16 << 10),
        ("grpc.max_concurrent_streams", limits.streams_per_connection),
        ("grpc.max_allowed_incoming_connections", connections or limits.connections),
        ("grpc.server_handshake_timeout_ms", idle_ms),
        ("grpc.max_connection_idle_ms", _CALLER_IDLE_MS),
        # By then a revoked certificate ends at the latest, and balancers see new servers.
        ("grpc.max_connection_age_ms", 3_600_000),
        ("grpc.max_connection_age_grace_ms", 600_000),
        # Else the buffers of a connection grow with its speed, also for calls that are refused.
        ("grpc.http2.bdp_probe", 0),
        ("grpc.so_reuseport", 0),
        # A peer that is gone without a word is noticed within a minute.
        ("grpc.keepalive_time_ms", 40_000),
        ("grpc.keepalive_timeout_ms", 20_000),
        ("grpc.http2.min_ping_interval_without_data_ms", 5_000),
        ("grpc.keepalive_permit_without_calls", 1),
    ]


_CALLER_IDLE_MS = 600_000
"""Connections of callers that are known, but silent, end after so long."""


def check_batch(request: Any, limits: Limits) -> None:
    """Raises InputError where a request asks more at once than ``limits.batch``."""
    name = _BATCHES.get(type(request))
    if name is not None:
        check_length(request, name, limits.batch)


def check_length(request: Any, name: str, most: int) -> None:
    """Raises InputError where a field of a request has more than ``most`` entries."""
    count = len(getattr(request, name))
    if count > most:
        raise InputError(
            "has too many entries.",
            field=name,
            value=count,
            allowed=f"up to {most} in one request",
        )


_BATCHES: Mapping[type, str] = {
    predictor_pb2.PredictRequest: "questions",
    predictor_pb2.RankNodesRequest: "nodes",
    predictor_pb2.PredictColocationRequest: "neighbours",
}


class _Gate(grpc.aio.ServerInterceptor):
    def __init__(
        self,
        guard: Guard,
        connections: Connections,
        working: Working,
        flooded: Callable[[str], None],
    ) -> None:
        self._guard = guard
        self._connections = connections
        self._working = working
        self._flooded = flooded
        self._wrapped: dict[str, Handler] = {}
        # One at a time: large messages do not multiply by decoding many of them at once.
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="kongming-decode")
        self._turns = Turns()
        self._pacing = Pacing(guard.limits)
        self._incoming = IncomingMessages(
            BODY_TIMEOUT_S, lambda: guard.full("unfinished_messages", _UNFINISHED)
        )
        self._unknown: Handler = grpc.stream_unary_rpc_method_handler(self._not_served)

    async def _not_served(self, contents: Any, context: Context) -> NoReturn:
        """Refuse a method that no service has, which is counted as what is public."""
        peer = context.peer()
        self._connections.begin(peer)
        try:
            headers.check(self._guard, peer, self._flooded)
            self._guard.admit(_PUBLIC, peer)
        except KongmingError as error:
            self._connections.end(peer)
            await self._guard.refusals.hold(error, peer)
            await call_errors.end(error, context)
        self._connections.end(peer)
        await context.abort(grpc.StatusCode.UNIMPLEMENTED, "Method not found!")
        raise AssertionError("abort returns")

    async def intercept_service(
        self, continuation: Any, handler_call_details: grpc.HandlerCallDetails
    ) -> Any:
        headers.keep(handler_call_details.invocation_metadata)
        method = handler_call_details.method
        known = self._wrapped.get(method)
        if known is not None:
            return known
        handler = await continuation(handler_call_details)
        # Methods that no service has are not remembered: there is no end to their names.
        if handler is None:
            return self._unknown
        self._wrapped[method] = wrapped = self._wrap(method, handler)
        return wrapped

    def _wrap(self, method: str, handler: Any) -> Handler:
        decoder = self._decoder(method, handler.request_deserializer)
        gated = _Method(
            method,
            self._guard,
            self._connections,
            decoder,
            self._pacing,
            self._incoming,
            self._flooded,
        )
        streaming = bool(handler.request_streaming)
        encode = handler.response_serializer
        if handler.response_streaming:
            behaviour = handler.stream_stream if streaming else handler.unary_stream
            return grpc.stream_stream_rpc_method_handler(
                gated.stream(behaviour, requests=streaming), response_serializer=encode
            )
        behaviour = handler.stream_unary if streaming else handler.unary_unary
        return grpc.stream_unary_rpc_method_handler(
            gated.unary(behaviour, encode, requests=streaming)
        )

    def _decoder(self, method: str, decode: Callable[[bytes], Any] | None) -> Decoder:
        limits = self._guard.limits
        most_bytes = limits.import_bytes if method == IMPORT else limits.message_bytes
        if method in _OF_NAMES:
            most_bytes = min(most_bytes, _NAME_BYTES)
        return Decoder(decode, most_bytes, self._executor, self._turns, self._working)


class _Method:
    """One method's way in and out. What is the same for each call is looked up once."""

    def __init__(
        self,
        method: str,
        guard: Guard,
        connections: Connections,
        decoder: Decoder,
        pacing: Pacing,
        incoming: IncomingMessages,
        flooded: Callable[[str], None],
    ) -> None:
        self._flooded = flooded
        self._pacing = pacing
        self._incoming = incoming
        self._method = method
        self._guard = guard
        self._connections = connections
        self._decoder = decoder
        self._seconds = guard.metrics.rpc_seconds.labels(method)
        self._rpcs = guard.metrics.rpcs
        self._ok = guard.metrics.rpcs.labels(method, "OK")

    def unary(
        self, behaviour: Any, encode: Callable[[Any], bytes] | None, *, requests: bool = False
    ) -> Any:
        """Around what gives one answer, which is given in bytes. ``requests``: to a stream of
        them."""

        async def answer(contents: Any, context: Context) -> bytes:
            begun, peer = time.perf_counter(), context.peer()
            ticket: Ticket | None = None
            try:
                ticket = self._admit(context, peer, stream=requests)
                request = (
                    self._messages(context, ticket, peer)
                    if requests
                    else await self._request(context, ticket, peer)
                )
                self._begin(request, context, ticket.caller, peer)
                answered = await behaviour(request, context)
                # Of what waits to be read nothing but its bytes is kept.
                content: bytes = answered if encode is None else encode(answered)
                # The task of a call ends when gRPC has sent its answer.
                call = asyncio.current_task()
                assert call is not None, "no task"
                self._guard.begin_answer(ticket, peer, call, len(content))
            except Exception as error:
                await self._refuse(error, ticket, context, peer, begun)
            except BaseException:
                self._left(ticket, peer, begun, "CANCELLED")
                raise
            else:
                self._left(ticket, peer, begun, "OK")
                del request, answered
                return content

        return answer

    def stream(self, behaviour: Any, *, requests: bool = False) -> Any:
        """Around what gives a stream of answers, as an async generator or by ``context.write``."""

        async def answer(contents: Any, context: Context) -> AsyncIterator[Any]:
            begun, peer = time.perf_counter(), context.peer()
            ticket: Ticket | None = None
            try:
                ticket = self._admit(context, peer, stream=True)
                request = (
                    self._messages(context, ticket, peer)
                    if requests
                    else await self._request(context, ticket, peer)
                )
                self._begin(request, context, ticket.caller, peer)
                answers = behaviour(request, context)
                if hasattr(answers, "__aiter__"):
                    async for response in answers:
                        # A token may have been revoked since the last answer.
                        self._guard.check(ticket)
                        yield response
                else:
                    await answers
            except Exception as error:
                await self._refuse(error, ticket, context, peer, begun)
            except BaseException:
                self._left(ticket, peer, begun, "CANCELLED")
                raise
            else:
                self._left(ticket, peer, begun, "OK")

        return answer

    def _admit(self, context: Context, peer: str, stream: bool) -> Ticket:
        guard = self._guard
        self._connections.begin(peer)
        headers.check(guard, peer, self._flooded)
        if guard.open:
            ticket = guard.admit(self._method, peer, stream=stream)
        else:
            shown = context.auth_context().get("x509_pem_cert", ())
            ticket = guard.admit(
                self._method, peer, headers.authorization(), next(iter(shown), None), stream=stream
            )
        caller = ticket.caller
        if caller.identified:
            self._connections.trust(peer, caller.identity if caller.is_agent else "")
        return ticket

    def _request(self, context: Context, ticket: Ticket, peer: str) -> Awaitable[Any]:
        """The message of a caller that was admitted."""
        is_agent = ticket.caller.is_agent
        read = self._in_turn if is_agent else self._message
        return read(context, ticket, peer)

    async def _in_turn(self, context: Context, ticket: Ticket, peer: str) -> Any:
        async with self._turn(ticket):
            return await self._message(context, ticket, peer)

    async def _message(self, context: Context, ticket: Ticket, peer: str) -> Any:
        with self._incoming_message(ticket):
            content = await context.read()
        if content is grpc.aio.EOF:
            raise InputError("There is no message.", field="message")
        if ticket.caller.is_agent:
            self._connections.take(peer, len(content))
        # A place is taken by what can be worked on, not by what is still to arrive.
        self._guard.begin(ticket)
        return await self._decoded(content, ticket)

    async def _messages(self, context: Context, ticket: Ticket, peer: str) -> AsyncIterator[Any]:
        # An operator's import may have nothing to send for a while.
        trusted = ticket.caller.role is Role.OPERATOR and ticket.caller.identified
        while True:
            with nullcontext() if trusted else self._incoming_message(ticket):
                content = await context.read()
            if content is grpc.aio.EOF:
                return
            self._guard.check(ticket)
            if ticket.caller.is_agent:
                self._connections.take(peer, len(content))
                async with self._turn(ticket):
                    request = await self._decoded(content, ticket)
            else:
                request = await self._decoded(content, ticket)
            yield request

    def _incoming_message(self, ticket: Ticket) -> AbstractContextManager[None]:
        if not ticket.caller.identified:
            return self._incoming.of("", _OF_STRANGERS)
        # Schedulers ask for much at once over slow lines; ``limits.calls_per_peer`` bounds them.
        return self._incoming.of(ticket.peer, _OF_AN_AGENT if ticket.caller.is_agent else None)

    @asynccontextmanager
    async def _turn(self, ticket: Ticket) -> AsyncIterator[None]:
        """The time of one message of an agent: they have their turns, before they are read."""
        async with AsyncExitStack() as turn:
            try:
                await turn.enter_async_context(self._pacing.turn(ticket.peer))
            except TimeoutError:
                raise self._guard.full("agent_rate") from None
            yield

    async def _decoded(self, content: bytes, ticket: Ticket) -> Any:
        if ticket.caller.is_agent:
            try:
                await self._pacing.take_bytes(ticket.peer, len(content))
            except TimeoutError:
                raise self._guard.full("agent_bytes") from None
        if len(content) <= OFF_LOOP_BYTES:
            return self._decoder.at_once(content)
        return await self._decoder.message(content, _who(ticket))

    def _begin(self, request: Any, context: Context, caller: Caller, peer: str) -> None:
        given = getattr(request, "request_id", None)
        if given is None:
            request_id = request_id_of(headers.first(REQUEST_ID_KEY))
        else:
            request_id = request_id_of(given)
            if not given:
                request.request_id = request_id
            check_batch(request, self._guard.limits)
        current_call.set(Call(self._method, request_id, caller, peer))

    async def _refuse(
        self, error: Exception, ticket: Ticket | None, context: Context, peer: str, begun: float
    ) -> NoReturn:
        # Over for all that counts and measures calls, before a refusal that waits.
        self._left(ticket, peer, begun, call_errors.code_of(error, context))
        await self._guard.refusals.hold(error, peer)
        await call_errors.end(error, context)

    def _left(self, ticket: Ticket | None, peer: str, begun: float, code: str) -> None:
        # Not the call's context: once a call has ended gRPC answers it with a crash.
        self._connections.end(peer)
        if ticket is not None:
            self._guard.leave(ticket)
        self._seconds.observe(time.perf_counter() - begun)
        if code == "OK":
            self._ok.inc()
        else:
            self._rpcs.labels(self._method, code).inc()


def _who(ticket: Ticket) -> str:
    return ticket.caller.identity or ticket.peer


BODY_TIMEOUT_S = 10.0
"""A request whose message takes longer to arrive is refused."""

_OF_AN_AGENT = Bound(16)
"""Messages of one agent that take their time at once."""

_OF_STRANGERS = Bound(4, newest_stay=True)
"""Of all strangers together: what they may ask for takes a few bytes."""

_UNFINISHED = (
    "Too many messages (of yours, or of all who show no token) have not come to an end: send fewer "
    "at a time."
)
