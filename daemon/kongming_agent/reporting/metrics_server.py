"""The port of the agent's metrics: whoever reaches it takes a small share of the node, and no more.

Callers are not authenticated there, and on a machine with users each of them reaches it. One thread
serves all: it rests in proportion to what it used, takes all that came meanwhile at once, and ends
the oldest of those that asked nothing yet. So a flood neither costs much nor keeps anybody out.
"""

from __future__ import annotations

import errno
import logging
import selectors
import socket
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST

__all__ = ["MetricsServer"]

log = logging.getLogger(__name__)

_MOST_SILENT = 64
"""Connections at one time that did not ask yet: one more ends the oldest."""

_MOST_ANSWERED = 16
"""Connections at one time that did not read the whole answer: one more ends the oldest."""

_ASK_S = 2.0
_READ_S = 10.0
"""A connection ends that did not ask, or did not read the answer, for so long."""

_SHARE = 0.05
"""Of one core, at the most: after each round the thread rests so long that it keeps to this."""

_REST_S = 0.01
"""At least: connections that come one by one are taken together."""

_BATCH = 64
"""Connections that are taken before those that asked are answered."""

_WAITING = 1024
"""Connections that the system keeps until they are taken, or net.core.somaxconn if that is less."""

_FRESH_S = 1.0

_REQUEST_BYTES = 8192


@dataclass(slots=True)
class _Open:
    """A connection: when it ends at the latest, and what it asked, or what is left to answer."""

    until: float
    left: bytes = b""


class MetricsServer:
    """Serves a registry at ``host``, an address or a name, and ``port``, in a thread of its own
    until ``close``. ``server_port`` is the port that it got.

    Raises:
        OSError: it cannot be listened there.
    """

    def __init__(self, host: str, port: int, registry: CollectorRegistry) -> None:
        addresses = socket.getaddrinfo(
            host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        # Of a name with addresses of both kinds IPv4: localhost is 127.0.0.1 to who scrapes it.
        family, _, _, _, address = min(addresses, key=lambda each: each[0] != socket.AF_INET)
        self._listener = socket.socket(family, socket.SOCK_STREAM)
        try:
            self._listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            self._listener.bind(address)
            self._listener.listen(_WAITING)
        except OSError:
            self._listener.close()
            raise
        self._listener.setblocking(False)
        self.server_port: int = self._listener.getsockname()[1]
        self._registry = registry
        self._answer, self._answer_at = b"", -_FRESH_S
        # In the order in which they came, and so in that of their ends.
        self._silent: dict[socket.socket, _Open] = {}
        self._answered: dict[socket.socket, _Open] = {}
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._bell, self._ringer = socket.socketpair()
        self._selector.register(self._bell, selectors.EVENT_READ)
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._serve, name="kongming-metrics", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._ended.set()
        with suppress(OSError):
            self._ringer.send(b"\0")
        self._thread.join(timeout=1.0)

    def _serve(self) -> None:
        while not self._ended.is_set():
            begun = time.thread_time()
            for key, _ in self._selector.select(self._patience()):
                ready: Any = key.fileobj
                if ready is self._listener:
                    self._take()
                elif ready in self._silent:
                    self._read(ready)
                elif ready in self._answered:
                    self._write(ready)
            now = time.monotonic()
            for which, most in ((self._silent, _MOST_SILENT), (self._answered, _MOST_ANSWERED)):
                surplus = len(which) - most
                for number, (connection, open_) in enumerate(list(which.items())):
                    if number >= surplus and open_.until > now:
                        break
                    self._end(connection)
            self._ended.wait(max(_REST_S, (time.thread_time() - begun) / _SHARE))
        for connection in (*self._silent, *self._answered):
            self._end(connection)
        self._selector.close()
        for mine in (self._listener, self._bell, self._ringer):
            mine.close()

    def _patience(self) -> float | None:
        """Seconds until a connection has taken too long; None where there is none."""
        ends = [
            next(iter(which.values())).until for which in (self._silent, self._answered) if which
        ]
        return max(0.0, min(ends) - time.monotonic()) if ends else None

    def _take(self) -> None:
        """Those that wait. What an honest caller asks has come with it by now."""
        for _ in range(_BATCH):
            try:
                connection, _ = self._listener.accept()
            except BlockingIOError:
                return
            except OSError as error:
                # Who left before is no news; without free files the oldest make room.
                if error.errno in (errno.EMFILE, errno.ENFILE) and self._silent:
                    self._end(next(iter(self._silent)))
                continue
            connection.setblocking(False)
            self._selector.register(connection, selectors.EVENT_READ)
            self._silent[connection] = _Open(time.monotonic() + _ASK_S)
            self._read(connection)

    def _read(self, connection: socket.socket) -> None:
        open_ = self._silent[connection]
        try:
            came = connection.recv(_REQUEST_BYTES)
        except BlockingIOError:
            return
        except OSError:
            came = b""
        open_.left += came
        if not came or len(open_.left) > _REQUEST_BYTES:
            self._end(connection)
        elif b"\r\n\r\n" in open_.left or b"\n\n" in open_.left:
            del self._silent[connection]
            text = self._text()
            if open_.left.startswith(b"HEAD "):
                text = text[: text.index(b"\r\n\r\n") + 4]
            self._answered[connection] = _Open(time.monotonic() + _READ_S, text)
            self._selector.modify(connection, selectors.EVENT_WRITE)
            self._write(connection)

    def _write(self, connection: socket.socket) -> None:
        open_ = self._answered[connection]
        try:
            open_.left = open_.left[connection.send(open_.left) :]
        except BlockingIOError:
            return
        except OSError:
            open_.left = b""
        if not open_.left:
            self._end(connection)

    def _end(self, connection: socket.socket) -> None:
        self._silent.pop(connection, None)
        self._answered.pop(connection, None)
        self._selector.unregister(connection)
        connection.close()

    def _text(self) -> bytes:
        """The whole answer; read again once a second at the most."""
        if time.monotonic() - self._answer_at >= _FRESH_S:
            try:
                status, text = "200 OK", generate_latest(self._registry)
            except Exception:
                log.exception("The metrics cannot be read.")
                status, text = "500 Internal Server Error", b""
            head = (
                f"HTTP/1.0 {status}\r\nContent-Type: {CONTENT_TYPE_LATEST}\r\n"
                f"Content-Length: {len(text)}\r\nConnection: close\r\n\r\n"
            )
            self._answer = head.encode() + text
            self._answer_at = time.monotonic()
        return self._answer
