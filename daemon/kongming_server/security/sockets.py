"""The sockets of gRPC's port: gRPC does not tell of its connections, but the process's files do.

gRPC bounds connections in all and the time of a handshake, and knows no limit for an address nor an
idle time for those alone who never said who they are. Both are kept here: the process looks at its
own files now and then, and shuts down what is to end, which gRPC then meets as a client that left.
Linux only, as it needs /proc.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import stat
import time
from collections.abc import Callable
from pathlib import Path

from kongming.rpc.connections import Connections, peer_name, plain_peer

__all__ = ["PortSockets", "watch_port"]

_log = logging.getLogger(__name__)
_FILES = Path("/proc/self/fd")
_LEAST_PERIOD_S = 0.2
_LARGEST_SHARE = 0.02
"""Of a core, what looking may take."""


class PortSockets:
    """The connected sockets of this process at a local port. Not safe in several threads."""

    def __init__(self, port: int) -> None:
        self._port = port
        # Of each socket, by its number in the kernel: its file and its peer; None for another's.
        self._known: dict[int, tuple[int, str] | None] = {}

    def peers(self) -> list[str]:
        """The peers of those that are open now."""
        sockets: dict[int, tuple[int, str] | None] = {}
        for entry in os.listdir(_FILES):  # noqa: PTH208  # ten thousands of names, not of paths
            handle = int(entry)
            try:
                status = os.fstat(handle)
            except OSError:
                continue
            if not stat.S_ISSOCK(status.st_mode):
                continue
            number = status.st_ino
            known = self._known.get(number)
            if known is not None:
                sockets[number] = (handle, known[1])
            elif number in self._known:
                sockets[number] = None
            else:
                peer = self._peer(handle)
                sockets[number] = None if peer is None else (handle, peer)
        self._known = sockets
        return [each[1] for each in sockets.values() if each is not None]

    def shut_down(self, peers: set[str]) -> int:
        """End the connections with these peers; returns how many were."""
        ended = 0
        for number, entry in self._known.items():
            if entry is None or entry[1] not in peers:
                continue
            held = _held(entry[0])
            if held is None:
                continue
            with held:
                # gRPC may have closed it since, and the file's number may be another's by now.
                if os.fstat(held.fileno()).st_ino != number:
                    continue
                try:
                    held.shutdown(socket.SHUT_RDWR)
                    ended += 1
                except OSError:
                    continue
        return ended

    def _peer(self, handle: int) -> str | None:
        held = _held(handle)
        if held is None:
            return None
        with held:
            if held.family not in (socket.AF_INET, socket.AF_INET6):
                return None
            try:
                if held.getsockname()[1] != self._port:
                    return None
                address = held.getpeername()
            except OSError:
                # It listens, or its peer has gone.
                return None
        return plain_peer(peer_name(str(address[0]), int(address[1])))


def _held(handle: int) -> socket.socket | None:
    """A socket of one's own for the same connection: gRPC may close its handle at any time."""
    try:
        copy = os.dup(handle)
    except OSError:
        return None
    try:
        return socket.socket(fileno=copy)
    except OSError:
        os.close(copy)
        return None


async def watch_port(
    port: int,
    connections: Connections,
    idle_s: float,
    stalled: Callable[[], set[str]] = set,
) -> None:
    """Keep ``connections`` as the sockets of ``port`` are, and end those that it names, and those
    that are ``stalled``."""
    sockets = PortSockets(port)
    if not _FILES.is_dir():
        _log.warning("There is no %s: connections to gRPC are not bounded by address.", _FILES)
        return
    while True:
        begun = time.monotonic()
        connections.keep(await asyncio.to_thread(sockets.peers), begun)
        ending = stalled().union(connections.to_end())
        if ending:
            ended = await asyncio.to_thread(sockets.shut_down, ending)
            _log.debug("%d connections to gRPC were ended.", ended)
            for peer in ending:
                connections.remove(peer)
        spent_s = time.monotonic() - begun
        await asyncio.sleep(max(_LEAST_PERIOD_S, min(1.0, idle_s / 4), spent_s / _LARGEST_SHARE))
