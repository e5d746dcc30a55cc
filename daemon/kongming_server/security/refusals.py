"""Delays for callers that ask again and again what is refused.

Whoever is refused at once asks again at once: each refusal costs the server little, and hundreds a
second cost what callers wait for. A refusal that waits costs nothing meanwhile but its place.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter

from kongming.records.errors import OverloadedError

__all__ = ["FailedOftenError", "Refusals"]

WAIT_S = 2.0
"""From half of it to one and a half times as long; more would keep an operator with a wrong token
waiting for no good."""

MOST = 512
"""Refusals that wait at the same time, in all; gRPC holds up to 64 KiB of a message for each."""

MOST_OF_ONE = 25
"""On one connection: each keeps one of its streams (``limits.streams_per_connection``, 100), which
callers behind the same proxy share."""


class FailedOftenError(OverloadedError):
    """Too many calls failed to say who they are, were not allowed, or asked what is public."""


class Refusals:
    """The refusals that wait. For one event loop."""

    def __init__(self, wait_s: float = WAIT_S, most: int = MOST) -> None:
        self._wait_s = wait_s
        self._most = most
        self._waiting: Counter[str] = Counter()

    async def hold(self, error: Exception, peer: str) -> None:
        """Wait, where ``error`` refuses somebody who failed often and there is room for one more,
        in all and on the peer's connection; return at once elsewhere. The call is to be over for
        all that counts and measures calls, so that its connection may be ended meanwhile and the
        waiting is no work of the server's.
        """
        if not isinstance(error, FailedOftenError):
            return
        if self._waiting.total() >= self._most or self._waiting[peer] >= MOST_OF_ONE:
            return
        self._waiting[peer] += 1
        try:
            # Those that came at once do not come back at once.
            await asyncio.sleep(self._wait_s * random.uniform(0.5, 1.5))
        finally:
            self._waiting[peer] -= 1
            if not self._waiting[peer]:
                del self._waiting[peer]
