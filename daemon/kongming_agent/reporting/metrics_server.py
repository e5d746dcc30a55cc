"""The port of the agent's metrics: whoever reaches it takes a small share of the node, and no more.

Nobody is asked who they are there, and on a machine with users each of them reaches it. Connections
are few, each has one answer and little time, and the numbers are read once a second at the most.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from socketserver import ThreadingMixIn
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST

__all__ = ["MetricsServer"]

_MOST = 16
"""Connections at one time: one more ends the oldest."""

_SILENT_S = 10.0
"""A connection on which nothing came for so long ends."""

_BETWEEN_S = 0.02
"""Between two connections: what a caller asks as fast as it can takes little of a core."""

_FRESH_S = 1.0


class MetricsServer(ThreadingMixIn, WSGIServer):
    """Serves a registry at ``host`` and ``port`` in threads of its own until ``close``.

    Raises:
        OSError: it cannot be listened there.
    """

    daemon_threads = True
    request_queue_size = 64

    def __init__(self, host: str, port: int, registry: CollectorRegistry) -> None:
        if ":" in host:
            self.address_family = socket.AF_INET6
        self._registry = registry
        # In the order in which they came.
        self._open: dict[socket.socket, None] = {}
        self._lock = threading.Lock()
        self._text, self._read_at = b"", -_FRESH_S
        super().__init__((host, port), _Handler)
        self.set_app(self._answer)
        self._thread = threading.Thread(
            target=self.serve_forever, name="kongming-metrics", daemon=True
        )
        self._thread.start()

    def close(self) -> None:
        self.shutdown()
        self.server_close()
        self._thread.join(timeout=1.0)

    def process_request(self, request: Any, client_address: Any) -> None:
        with self._lock:
            self._open[request] = None
            surplus = list(self._open)[:-_MOST]
        for oldest in surplus:
            # Its thread meets the end of what it reads.
            with suppress(OSError):
                oldest.shutdown(socket.SHUT_RDWR)
        super().process_request(request, client_address)
        time.sleep(_BETWEEN_S)

    def shutdown_request(self, request: Any) -> None:
        with self._lock:
            self._open.pop(request, None)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A caller that left, or was ended, is no news."""

    def _answer(
        self, environ: dict[str, Any], start: Callable[[str, list[tuple[str, str]]], object]
    ) -> Iterable[bytes]:
        with self._lock:
            if time.monotonic() - self._read_at >= _FRESH_S:
                self._text = generate_latest(self._registry)
                self._read_at = time.monotonic()
            text = self._text
        start("200 OK", [("Content-Type", CONTENT_TYPE_LATEST)])
        return [text]


class _Handler(WSGIRequestHandler):
    timeout = _SILENT_S

    def log_message(self, format: str, *args: Any) -> None:
        """What callers ask is not worth a line."""
