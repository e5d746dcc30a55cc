"""A gRPC and HTTP server of the real gate over made-up servicers, in a thread of this process."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from typing import Any

import grpc
from google.protobuf import descriptor_pool, message_factory
from google.protobuf.descriptor import MethodDescriptor
from kongming_server.calls.interceptors import interceptors, server_options
from kongming_server.configuration.limits import Limits
from kongming_server.configuration.settings import Security
from kongming_server.http import make_http
from kongming_server.http.serving import serve
from kongming_server.monitoring.metrics import Metrics
from kongming_server.security import Guard, TokenBook
from kongming_server.security.credentials import add_port, http_ssl
from kongming_server.security.sockets import watch_port

from kongming.rpc.connections import Connections
from kongming.rpc.v1 import assignments_pb2, fleet_pb2, predictor_pb2, profiles_pb2
from kongming.store import StoredToken

FILES = (fleet_pb2, assignments_pb2, predictor_pb2, profiles_pb2)

Behaviour = Callable[[Any, Any], Any]


def rpcs() -> dict[str, MethodDescriptor]:
    """Every RPC of the wire contract by its full name, ``/package.Service/Method``."""
    return {
        f"/{service.full_name}/{method.name}": method
        for file in FILES
        for service in file.DESCRIPTOR.services_by_name.values()
        for method in service.methods
    }


def message_class(descriptor: Any) -> Any:
    pool = descriptor_pool.Default()
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(descriptor.full_name))


def call(
    channel: grpc.Channel,
    method: str,
    request: Any = None,
    *,
    token: str | None = None,
    timeout: float = 10.0,
    metadata: Sequence[tuple[str, str]] = (),
) -> Any:
    """Call any RPC with one message, an empty one by default, and return the last answer."""
    described = rpcs()[method]
    request_class, response_class = (
        message_class(described.input_type),
        message_class(described.output_type),
    )
    kind = ("stream" if described.client_streaming else "unary") + (
        "_stream" if described.server_streaming else "_unary"
    )
    invoke = getattr(channel, kind)(
        method,
        request_serializer=request_class.SerializeToString,
        response_deserializer=response_class.FromString,
    )
    message = request_class() if request is None else request
    headers = [*metadata, *([("authorization", f"Bearer {token}")] if token else [])]
    given = iter([message]) if described.client_streaming else message
    result = invoke(given, timeout=timeout, metadata=headers)
    return list(result) if described.server_streaming else result


class Stand:
    """The server, for the time of a ``with`` block.

    ``behaviours``: what answers an RPC, by its name (``Predict``), as a coroutine function of
    request and context; every other RPC answers with an empty message.
    """

    def __init__(
        self,
        security: Security | None = None,
        limits: Limits | None = None,
        *,
        tokens: Callable[[], Sequence[StoredToken]] = tuple,
        behaviours: Mapping[str, Behaviour] | None = None,
        ready: Callable[[], str | None] = lambda: None,
        degraded: Callable[[], str | None] = lambda: None,
        host: str = "127.0.0.1",
        **guard: Any,
    ) -> None:
        self.metrics = Metrics()
        self.tokens = TokenBook(tokens)
        self.tokens.load()
        self.guard = Guard(
            security or Security(),
            limits or Limits(),
            metrics=self.metrics,
            tokens=self.tokens,
            **guard,
        )
        self.calls: list[tuple[str, Any]] = []
        self.grpc = ""
        self.http = ""
        self._behaviours = dict(behaviours or {})
        self._ready = ready
        self._degraded = degraded
        self._host = host
        self._started = threading.Event()
        self._failure: BaseException | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._done: asyncio.Event | None = None
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()), daemon=True)

    def __enter__(self) -> Stand:
        self._thread.start()
        assert self._started.wait(20)
        if self._failure is not None:
            raise self._failure
        return self

    def __exit__(self, *exception: object) -> None:
        if self._loop is not None and self._done is not None:
            self._loop.call_soon_threadsafe(self._done.set)
        self._thread.join(20)

    def channel(self, **options: Any) -> grpc.Channel:
        return grpc.insecure_channel(self.grpc, **options)

    def sample(self, name: str, **labels: str) -> float:
        """The value of a metric as it would be exported; 0 for one that was never counted."""
        return self.metrics.registry.get_sample_value(name, labels) or 0.0

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._done = asyncio.Event()
        undo = AsyncExitStack()
        try:
            guard = self.guard
            over_grpc = self._connections(spare_trusted=True)
            server = grpc.aio.server(
                interceptors=interceptors(guard, over_grpc), options=server_options(guard.limits)
            )
            server.add_generic_rpc_handlers((self._handlers(),))
            port = add_port(server, f"{self._host}:0", guard.security)
            await server.start()
            self.grpc = f"{self._host}:{port}"
            watching = asyncio.create_task(
                watch_port(port, over_grpc, guard.limits.idle_s, guard.unread_answers.stalled)
            )
            connections = self._connections()
            app = make_http(
                *(self, self.metrics, guard),
                ready=self._ready,
                degraded=self._degraded,
                connections=connections,
            )
            taken = await serve(
                app,
                undo,
                connections,
                (self._host, 0),
                tls=http_ssl(guard.security),
                idle_s=guard.limits.idle_s,
                grace_s=0.0,
            )
            self.http = f"{self._host}:{taken}"
        except BaseException as error:
            self._failure = error
            self._started.set()
            return
        self._started.set()
        await self._done.wait()
        watching.cancel()
        await undo.aclose()
        await server.stop(0)
        with suppress(asyncio.CancelledError):
            await server.wait_for_termination()

    def _connections(self, *, spare_trusted: bool = False) -> Connections:
        limits = self.guard.limits
        return Connections(
            most=limits.connections,
            per_address=limits.connections_per_address,
            idle_s=limits.idle_s,
            spare_trusted=spare_trusted,
        )

    async def Predict(self, request: Any, context: Any) -> Any:  # noqa: N802
        return await self._answer("Predict", request, context)

    async def RankNodes(self, request: Any, context: Any) -> Any:  # noqa: N802
        return await self._answer("RankNodes", request, context)

    async def _answer(self, name: str, request: Any, context: Any) -> Any:
        self.calls.append((name, request))
        if name in self._behaviours:
            return await self._behaviours[name](request, context)
        described = next(method for method in rpcs().values() if method.name == name)
        answer = message_class(described.output_type)()
        if hasattr(answer, "request_id"):
            answer.request_id = request.request_id
        return answer

    def _handlers(self) -> grpc.GenericRpcHandler:
        stand = self

        class Handlers(grpc.GenericRpcHandler):
            def service(self, details: grpc.HandlerCallDetails) -> Any:
                described = rpcs().get(details.method)
                return None if described is None else stand._handler(described)

        return Handlers()

    def _handler(self, described: MethodDescriptor) -> Any:
        request_class = message_class(described.input_type)
        response_class = message_class(described.output_type)
        coding = {
            "request_deserializer": request_class.FromString,
            "response_serializer": response_class.SerializeToString,
        }
        name = described.name

        async def unary(request: Any, context: Any) -> Any:
            if described.client_streaming:
                request = [message async for message in request]
            return await self._answer(name, request, context)

        async def stream(request: Any, context: Any) -> Any:
            yield await self._answer(name, request, context)

        if described.client_streaming:
            return grpc.stream_unary_rpc_method_handler(unary, **coding)
        if described.server_streaming:
            return grpc.unary_stream_rpc_method_handler(stream, **coding)
        return grpc.unary_unary_rpc_method_handler(unary, **coding)
