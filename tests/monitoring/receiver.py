"""A receiver of OpenTelemetry's protocol: the gRPC service that opentelemetry-proto defines."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import grpc
from opentelemetry.proto.collector.metrics.v1 import (
    metrics_service_pb2,
    metrics_service_pb2_grpc,
)


class Receiver(metrics_service_pb2_grpc.MetricsServiceServicer):  # type: ignore[misc]
    """Keeps the newest message of each metric by its name, and the resources that sent any."""

    def __init__(self) -> None:
        self.address = ""
        self.metrics: dict[str, Any] = {}
        self.resources: list[dict[str, str]] = []

    def Export(self, request: Any, context: Any) -> Any:  # noqa: N802
        for sent in request.resource_metrics:
            self.resources.append({a.key: a.value.string_value for a in sent.resource.attributes})
            for scope in sent.scope_metrics:
                self.metrics |= {metric.name: metric for metric in scope.metrics}
        return metrics_service_pb2.ExportMetricsServiceResponse()


@contextmanager
def receiving() -> Iterator[Receiver]:
    server = grpc.server(ThreadPoolExecutor(2))
    receiver = Receiver()
    metrics_service_pb2_grpc.add_MetricsServiceServicer_to_server(receiver, server)
    receiver.address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    server.start()
    try:
        yield receiver
    finally:
        server.stop(None).wait()
