"""Accepting HTTP connections: bounded in all and by address, before anything is spent on TLS.

asyncio's own server accepts whatever comes and keeps it for as long as it likes to stay. This one
makes room by ending the connections that have been idle longest, stops accepting for a moment where
no file can be opened, and ends what does not finish a request in time.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import resource
import socket
import ssl
from collections.abc import Callable
from pathlib import Path

from kongming.rpc.connections import Connections, peer_name

__all__ = ["Listener", "connections_allowed", "listening", "peer_of"]

_log = logging.getLogger(__name__)
_BACKLOG = 1024
_AT_ONCE = 64
"""Connections that are accepted before other work has its turn."""

_PAUSE_S = 1.0
"""How long nothing is accepted after no file could be opened."""


_OPEN_FILES = Path("/proc/self/fd")
HANDLES_KEPT = 64
"""Files that the process can open besides those of connections: the store, logs, certificates."""


def connections_allowed(most: int) -> int:
    """Return how many connections there may be of all ports together: ``most``, and fewer where the
    limit of open files is lower. At least 16."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return most
    try:
        used = len(list(_OPEN_FILES.iterdir()))
    except OSError:
        used = HANDLES_KEPT
    return max(16, min(most, soft - used - HANDLES_KEPT))


def peer_of(transport: asyncio.BaseTransport | None) -> str:
    """Return whose connection it is, as ``Connections`` knows it."""
    name = None if transport is None else transport.get_extra_info("peername")
    if isinstance(name, tuple) and len(name) >= 2:
        return peer_name(str(name[0]), int(name[1]))
    return "unix:"


class Listener:
    """``start()``, then ``close()``. ``factory`` makes the protocol of each connection."""

    def __init__(
        self,
        factory: Callable[[], asyncio.BaseProtocol],
        connections: Connections,
        *,
        tls: ssl.SSLContext | None = None,
        idle_s: float = 30.0,
    ) -> None:
        self._factory = factory
        self._connections = connections
        self._tls = tls
        self._idle_s = idle_s
        self._sockets: list[socket.socket] = []
        self._open: dict[str, socket.socket | asyncio.BaseTransport] = {}
        self._joining: set[asyncio.Task[None]] = set()
        self._timers: set[asyncio.TimerHandle] = set()
        self._sweeper: asyncio.Task[None] | None = None

    @property
    def port(self) -> int:
        return int(self._sockets[0].getsockname()[1])

    async def start(self, host: str, port: int) -> None:
        """Listen at every address of ``host``. Raises OSError."""
        loop = asyncio.get_running_loop()
        self._sockets = await listening(host, port)
        for sock in self._sockets:
            loop.add_reader(sock, self._accept, sock)
        self._sweeper = asyncio.create_task(self._sweep(), name="Ending idle connections")

    async def close(self) -> None:
        """Accept no more; connections that are open stay to their protocols."""
        self._stop()
        waiting = [*self._joining, *filter(None, (self._sweeper,))]
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)

    def _stop(self) -> None:
        loop = asyncio.get_running_loop()
        for timer in self._timers:
            timer.cancel()
        for sock in self._sockets:
            loop.remove_reader(sock)
            sock.close()
        self._sockets.clear()

    def _accept(self, listening: socket.socket) -> None:
        for _ in range(_AT_ONCE):
            try:
                accepted, address = listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                _log.warning("No connection can be accepted: %s.", error.strerror or error)
                self._pause(listening)
                return
            accepted.setblocking(False)
            self._join(accepted, peer_name(str(address[0]), int(address[1])))

    def _pause(self, listening: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        loop.remove_reader(listening)

        def resume() -> None:
            self._timers.discard(timer)
            loop.add_reader(listening, self._accept, listening)

        timer = loop.call_later(_PAUSE_S, resume)
        self._timers.add(timer)

    def _join(self, accepted: socket.socket, peer: str) -> None:
        if not self._connections.has_room(peer):
            self._end_surplus(peer)
            if not self._connections.has_room(peer):
                _log.warning("A connection of %s is refused: there are too many.", peer)
                accepted.close()
                return
        self._connections.add(peer)
        self._open[peer] = accepted
        task = asyncio.create_task(self._handshake(accepted, peer))
        self._joining.add(task)
        task.add_done_callback(self._joining.discard)

    async def _handshake(self, accepted: socket.socket, peer: str) -> None:
        loop = asyncio.get_running_loop()
        timeout_s = None if self._tls is None else min(self._idle_s, _HANDSHAKE_S)
        try:
            transport, _ = await loop.connect_accepted_socket(
                lambda: _Watched(self._factory(), lambda: self._left(peer)),
                accepted,
                ssl=self._tls,
                ssl_handshake_timeout=timeout_s,
            )
        except (OSError, ssl.SSLError) as error:
            # Whoever does not speak TLS, or stopped in the midst of it.
            _log.info("No connection with %s came about: %s", peer, error)
            self._left(peer)
            accepted.close()
        except BaseException:
            self._left(peer)
            accepted.close()
            raise
        else:
            if peer in self._open:
                self._open[peer] = transport

    def _left(self, peer: str) -> None:
        self._open.pop(peer, None)
        self._connections.remove(peer)

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(min(1.0, self._idle_s / 4))
            self._end_surplus()

    def _end_surplus(self, joining: str | None = None) -> None:
        for peer in self._connections.to_end(joining):
            ending = self._open.pop(peer, None)
            self._connections.remove(peer)
            if isinstance(ending, socket.socket):
                # In the midst of its handshake, which fails of it.
                _shut_down(ending)
            elif isinstance(ending, asyncio.WriteTransport):
                ending.abort()


_HANDSHAKE_S = 10.0


async def listening(host: str, port: int) -> list[socket.socket]:
    """Return sockets that listen at every address of ``host``, at least one. Raises OSError."""
    loop = asyncio.get_running_loop()
    addresses = await loop.getaddrinfo(
        host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )
    sockets: list[socket.socket] = []
    absent: OSError | None = None
    for family, kind, protocol, _, address in dict.fromkeys(addresses):
        # A free port is taken once, and then of each address.
        taken = sockets[0].getsockname()[1] if port == 0 and sockets else port
        try:
            sockets.append(_listening(family, kind, protocol, address[0], taken))
        except OSError as error:
            # A name may have an address of a kind that this machine does without.
            if error.errno not in (errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL):
                for sock in sockets:
                    sock.close()
                raise
            absent = error
    if not sockets and absent is not None:
        raise absent
    return sockets


def _listening(family: int, kind: int, protocol: int, host: object, port: int) -> socket.socket:
    sock = socket.socket(family, kind, protocol)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        sock.bind((host, port))
        sock.listen(_BACKLOG)
        sock.setblocking(False)
    except BaseException:
        sock.close()
        raise
    return sock


def _shut_down(sock: socket.socket) -> None:
    try:
        sock.shutdown(socket.SHUT_RDWR)
    except OSError:
        # It has ended by itself.
        return


class _Watched(asyncio.Protocol):
    """A protocol, and a word when its connection is gone."""

    def __init__(self, inner: asyncio.BaseProtocol, lost: Callable[[], None]) -> None:
        assert isinstance(inner, asyncio.Protocol)
        self._inner = inner
        self._lost = lost
        # What comes in and goes out passes without a step between.
        self.data_received = inner.data_received  # type: ignore[method-assign]
        self.eof_received = inner.eof_received  # type: ignore[method-assign]
        self.pause_writing = inner.pause_writing  # type: ignore[method-assign]
        self.resume_writing = inner.resume_writing  # type: ignore[method-assign]

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._inner.connection_made(transport)

    def connection_lost(self, error: Exception | None) -> None:
        self._lost()
        self._inner.connection_lost(error)
