"""What every gRPC call goes through: the gate, a request id, and errors as statuses.

It is one interceptor, and a method is wrapped once: a chain of five, each looking the method up
for each call, costs more than a prediction.
"""

from __future__ import annotations

import itertools
import logging
import secrets
import time
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any, NoReturn

import grpc
from google.protobuf.message import DecodeError

from kongming.records.errors import InputError, KongmingError
from kongming.rpc.errors import to_status
from kongming.rpc.v1 import predictor_pb2
from kongming_server.security.admission import Call, Caller, Guard, Ticket, current_call
from kongming_server.settings import Limits

__all__ = [
    "RequestIds",
    "check_batch",
    "check_length",
    "interceptors",
    "request_id_of",
    "server_options",
]

_log = logging.getLogger(__name__)

REQUEST_ID_KEY = "x-request-id"
_LONGEST_REQUEST_ID = 128
_process = secrets.token_hex(4)
_count = itertools.count(1)

if TYPE_CHECKING:  # Their types take parameters only for a checker.
    Context = grpc.aio.ServicerContext[Any, Any]
    Handler = grpc.RpcMethodHandler[Any, Any]


def interceptors(guard: Guard) -> list[grpc.aio.ServerInterceptor]:
    """The interceptors of a grpc.aio server."""
    return [_Gate(guard)]


def server_options(limits: Limits) -> list[tuple[str, Any]]:
    """Channel arguments of the server: sizes, streams of a connection, pings."""
    return [
        ("grpc.max_receive_message_length", limits.message_bytes),
        ("grpc.max_send_message_length", -1),
        ("grpc.max_metadata_size", 16 << 10),
        ("grpc.max_concurrent_streams", limits.streams_per_peer),
        ("grpc.so_reuseport", 0),
        # A peer that is gone without a word is noticed within a minute.
        ("grpc.keepalive_time_ms", 40_000),
        ("grpc.keepalive_timeout_ms", 20_000),
        ("grpc.http2.min_ping_interval_without_data_ms", 5_000),
        ("grpc.keepalive_permit_without_calls", 1),
    ]


def request_id_of(given: str) -> str:
    """The request id to use: what the caller gave, or a new one.

    Raises:
        InputError: what was given is too long, or cannot stand in a header or on a line of a log.
    """
    if not given:
        return f"{_process}-{next(_count):x}"
    # Metadata and headers that bring it back hold no other characters.
    plain = given.isascii() and given.isprintable()
    if len(given) > _LONGEST_REQUEST_ID or not plain:
        raise InputError(
            "is not allowed.",
            field="request_id",
            found=given[:_LONGEST_REQUEST_ID],
            allowed=f"up to {_LONGEST_REQUEST_ID} printable ASCII characters",
        )
    return given


def check_batch(request: Any, limits: Limits) -> None:
    """Raises InputError where a request asks more at once than ``limits.batch``."""
    for kind, name in _BATCHES:
        if isinstance(request, kind):
            check_length(request, name, limits.batch)


def check_length(request: Any, name: str, most: int) -> None:
    """Raises InputError where a field of a request has more than ``most`` entries."""
    found = len(getattr(request, name))
    if found > most:
        raise InputError(
            "has too many entries.",
            field=name,
            found=found,
            allowed=f"up to {most} in one request",
        )


_BATCHES = (
    (predictor_pb2.PredictRequest, "questions"),
    (predictor_pb2.RankNodesRequest, "nodes"),
    (predictor_pb2.PredictColocationRequest, "neighbours"),
)


class RequestIds(logging.Filter):
    """Puts ``request_id`` and ``caller`` on each record of a log: of the call, or a dash."""

    def filter(self, record: logging.LogRecord) -> bool:
        call = current_call.get()
        record.request_id = "-" if call is None else call.request_id
        record.caller = "-" if call is None else call.caller.name
        return True


class _Gate(grpc.aio.ServerInterceptor):
    def __init__(self, guard: Guard) -> None:
        self._guard = guard
        self._wrapped: dict[str, Handler] = {}

    async def intercept_service(
        self, continuation: Any, handler_call_details: grpc.HandlerCallDetails
    ) -> Any:
        method = handler_call_details.method
        known = self._wrapped.get(method)
        if known is not None:
            return known
        handler = await continuation(handler_call_details)
        # Methods that nobody serves are not remembered: there is no end to their names.
        if handler is None:
            return None
        self._wrapped[method] = wrapped = self._wrap(method, handler)
        return wrapped

    def _wrap(self, method: str, handler: Any) -> Handler:
        decode = handler.request_deserializer
        coding = {
            # Of a stream it raises where the servicer reads, which is inside of the gate.
            "request_deserializer": decode if handler.request_streaming else _decoding(decode),
            "response_serializer": handler.response_serializer,
        }
        gated = _Method(method, self._guard)
        if handler.unary_unary:
            return grpc.unary_unary_rpc_method_handler(gated.unary(handler.unary_unary), **coding)
        if handler.stream_unary:
            return grpc.stream_unary_rpc_method_handler(
                gated.unary(handler.stream_unary, stream=True), **coding
            )
        if handler.unary_stream:
            return grpc.unary_stream_rpc_method_handler(
                gated.stream(handler.unary_stream), **coding
            )
        return grpc.stream_stream_rpc_method_handler(gated.stream(handler.stream_stream), **coding)


class _Undecoded:
    """In place of a request that could not be decoded: gRPC would end the call with UNKNOWN."""


_undecoded = _Undecoded()


def _decoding(decode: Any) -> Any:
    if decode is None:
        return None

    def attempt(content: bytes) -> Any:
        try:
            return decode(content)
        except DecodeError:
            return _undecoded

    return attempt


class _Method:
    """One method's way in and out. What is the same for each call is looked up once."""

    def __init__(self, method: str, guard: Guard) -> None:
        self._method = method
        self._guard = guard
        self._seconds = guard.metrics.rpc_seconds.labels(method)
        self._rpcs = guard.metrics.rpcs
        self._ok = guard.metrics.rpcs.labels(method, "OK")

    def unary(self, behaviour: Any, *, stream: bool = False) -> Any:
        """Around what gives one answer. ``stream``: the requests are one."""

        async def answer(request: Any, context: Context) -> Any:
            begun = time.perf_counter()
            ticket: Ticket | None = None
            code = "CANCELLED"
            try:
                ticket = self._admit(context, stream)
                self._begin(None if stream else request, context, ticket.caller)
                answered = await behaviour(request, context)
                code = "OK"
                return answered
            except Exception as error:
                code = _code_of(error, context)
                await _end(error, context)
            finally:
                self._left(ticket, begun, code)

        return answer

    def stream(self, behaviour: Any) -> Any:
        """Around what gives a stream of answers, as an async generator or by ``context.write``."""

        async def answer(request: Any, context: Context) -> AsyncIterator[Any]:
            begun = time.perf_counter()
            ticket: Ticket | None = None
            code = "CANCELLED"
            try:
                ticket = self._admit(context, stream=True)
                self._begin(request, context, ticket.caller)
                answers = behaviour(request, context)
                if hasattr(answers, "__aiter__"):
                    async for one in answers:
                        yield one
                else:
                    await answers
                code = "OK"
            except Exception as error:
                code = _code_of(error, context)
                await _end(error, context)
            finally:
                self._left(ticket, begun, code)

        return answer

    def _admit(self, context: Context, stream: bool) -> Ticket:
        guard = self._guard
        if guard.open:
            return guard.admit(self._method, context.peer(), stream=stream)
        authorization = None
        for key, value in context.invocation_metadata() or ():
            if key == "authorization":
                authorization = value if isinstance(value, str) else ""
        shown = context.auth_context().get("x509_pem_cert", ())
        certificate = next(iter(shown), None)
        return guard.admit(self._method, context.peer(), authorization, certificate, stream=stream)

    def _begin(self, request: Any, context: Context, caller: Caller) -> None:
        if request is _undecoded:
            raise DecodeError
        given = getattr(request, "request_id", None)
        if given is None:
            metadata = context.invocation_metadata() or ()
            shown = next((value for key, value in metadata if key == REQUEST_ID_KEY), "")
            request_id = request_id_of(shown if isinstance(shown, str) else "")
        else:
            request_id = request_id_of(given)
            if not given:
                request.request_id = request_id
            check_batch(request, self._guard.limits)
        current_call.set(Call(self._method, request_id, caller))

    def _left(self, ticket: Ticket | None, begun: float, code: str) -> None:
        if ticket is not None:
            self._guard.leave(ticket)
        self._seconds.observe(time.perf_counter() - begun)
        if code == "OK":
            self._ok.inc()
        else:
            self._rpcs.labels(self._method, code).inc()


def _code_of(error: Exception, context: Context) -> str:
    if isinstance(error, grpc.aio.AbortError):
        code = context.code()
        return code.name if isinstance(code, grpc.StatusCode) else "UNKNOWN"
    return to_status(_told(error)).code.name


def _told(error: Exception) -> Exception:
    """What the caller is told of."""
    if isinstance(error, DecodeError):
        return InputError("The bytes are no message of this method.", field="message")
    return error


async def _end(error: Exception, context: Context) -> NoReturn:
    """End the call with the status of ``error``."""
    if isinstance(error, grpc.aio.AbortError):
        raise error
    error = _told(error)
    call = current_call.get()
    request_id = "-" if call is None else call.request_id
    if not isinstance(error, KongmingError | TimeoutError):
        # The caller is told nothing of it but the id to ask for.
        _log.error("Unforeseen error in request %s", request_id, exc_info=error)
    status = to_status(error)
    trailers: tuple[tuple[str, str | bytes], ...] = (
        *status.trailers,
        (REQUEST_ID_KEY, request_id),
    )
    await context.abort(status.code, status.message, trailers)
    raise AssertionError("abort returns")
