"""Answers that were not read yet: bounded in bytes for each caller, and in time for strangers.

An answer is kept until its caller reads it. Whoever asks without end and reads nothing
(an HTTP/2 window of 0 bytes) would fill the memory with answers. Streams need no bound here: each
has one unread answer, and they are counted as long as they are open.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from kongming.rpc.connections import plain_peer

__all__ = ["ANSWER_BYTES", "KNOWN_BYTES", "STRANGERS_BYTES", "UnreadAnswers"]

ANSWER_BYTES = 32 << 10
"""What gRPC keeps for each answer besides its content, about."""

KNOWN_BYTES = 64 << 20
"""Answers of one token or certificate that were not read yet, from whatever addresses."""

STRANGERS_BYTES = 4 * (ANSWER_BYTES + 256)
"""On one connection of a stranger: four answers. What is public takes a few bytes."""

STRANGERS_S = 10.0
"""A stranger who does not read an answer for so long loses the connection."""


class UnreadAnswers:
    """The answers that have not been sent yet, of gRPC unary ones, of HTTP large ones. For one
    event loop."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._unread: dict[str, int] = {}
        # Connections of strangers and since when, in the order in which the answers were given.
        self._strangers: dict[asyncio.Future[object], tuple[str, float]] = {}

    @property
    def unread(self) -> int:
        """Bytes of all answers that were not read yet."""
        return sum(self._unread.values())

    def begin(self, sent: asyncio.Future[object], who: str, size: int, *, stranger: bool) -> bool:
        """Begin an answer of ``size`` bytes; return whether it may be sent; it was sent when
        ``sent`` is done.

        ``who`` a caller is: of a stranger the connection, as gRPC names it. One answer of any size
        may be sent where no other is unread.
        """
        size += ANSWER_BYTES
        unread = self._unread.get(who, 0)
        if unread and unread + size > (STRANGERS_BYTES if stranger else KNOWN_BYTES):
            return False
        self._unread[who] = unread + size
        if stranger:
            self._strangers[sent] = who, self._clock()

        def forget(_: object) -> None:
            self._strangers.pop(sent, None)
            self._unread[who] -= size
            if not self._unread[who]:
                del self._unread[who]

        sent.add_done_callback(forget)
        return True

    def stalled(self) -> set[str]:
        """The connections that are to end: their strangers read nothing. As ``Connections`` names
        them."""
        latest = self._clock() - STRANGERS_S
        peers = set()
        for peer, since in self._strangers.values():
            if since > latest:
                break
            peers.add(plain_peer(peer))
        return peers
