"""A gRPC server in this process that answers as a test says, for clients and commands."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent import futures
from contextlib import contextmanager
from typing import Any

import grpc

from kongming.records.errors import KongmingError
from kongming.rpc.errors import to_status
from kongming.rpc.v1 import assignments_pb2, fleet_pb2, predictor_pb2, profiles_pb2

_SERVICES = [
    module.DESCRIPTOR.services_by_name[name]
    for module, name in (
        (predictor_pb2, "Predictor"),
        (fleet_pb2, "Fleet"),
        (profiles_pb2, "Profiles"),
        (assignments_pb2, "Assignments"),
    )
]
_MESSAGES = {
    descriptor.full_name: getattr(module, name)
    for module in (predictor_pb2, fleet_pb2, profiles_pb2, assignments_pb2)
    for name, descriptor in module.DESCRIPTOR.message_types_by_name.items()
}

Answers = dict[str, Callable[..., Any]]


class Scripted:
    """``answers`` are by name of the RPC: a function of the request (of a streamed one: the list
    of requests) that gives the response, or an iterable of them. ``seen`` holds each call's name,
    request and metadata."""

    def __init__(self, answers: Answers) -> None:
        self.answers = answers
        self.seen: list[tuple[str, Any, dict[str, Any]]] = []
        self.target = ""

    def handlers(self) -> list[grpc.GenericRpcHandler]:
        return [
            grpc.method_handlers_generic_handler(
                service.full_name,
                {method.name: self._handler(method) for method in service.methods},
            )
            for service in _SERVICES
        ]

    def _handler(self, method: Any) -> grpc.RpcMethodHandler[Any, Any]:
        streams_in, streams_out = method.client_streaming, method.server_streaming
        make = {
            (False, False): grpc.unary_unary_rpc_method_handler,
            (True, False): grpc.stream_unary_rpc_method_handler,
            (False, True): grpc.unary_stream_rpc_method_handler,
        }[streams_in, streams_out]

        def answer(request: Any, context: grpc.ServicerContext) -> Any:
            try:
                if streams_in:
                    request = list(request)
                metadata = {key: value for key, value in context.invocation_metadata()}
                self.seen.append((method.name, request, metadata))
                if method.name not in self.answers:
                    context.abort(grpc.StatusCode.UNIMPLEMENTED, f"no answer to {method.name}")
                return self.answers[method.name](request)
            except KongmingError as error:
                status = to_status(error)
                context.set_trailing_metadata(status.trailers)
                context.abort(status.code, status.message)

        def stream(request: Any, context: grpc.ServicerContext) -> Iterator[Any]:
            for response in answer(request, context):
                if isinstance(response, BaseException):
                    raise response
                yield response

        return make(
            stream if streams_out else answer,
            request_deserializer=_MESSAGES[method.input_type.full_name].FromString,
            response_serializer=_MESSAGES[method.output_type.full_name].SerializeToString,
        )


@contextmanager
def serving(
    answers: Answers, credentials: grpc.ServerCredentials | None = None
) -> Iterator[Scripted]:
    """The server on a port of its own: ``scripted.target`` is its address."""
    scripted = Scripted(answers)
    server = grpc.server(futures.ThreadPoolExecutor(4), handlers=scripted.handlers())
    if credentials is None:
        port = server.add_insecure_port("127.0.0.1:0")
    else:
        port = server.add_secure_port("127.0.0.1:0", credentials)
    scripted.target = f"127.0.0.1:{port}"
    server.start()
    try:
        yield scripted
    finally:
        server.stop(0).wait()
