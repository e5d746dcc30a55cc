"""Turns of what one agent sends fast, so that what all others send does not wait."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager

from kongming_server.configuration.limits import Limits
from kongming_server.running.turns import Turns
from kongming_server.security.rates import Rates

__all__ = ["LONGEST_S", "Pacing"]

LONGEST_S = 5.0
"""A call that would wait longer is refused: whoever made it hardly waits for so long."""


class Pacing:
    """``limits.agent_rate``, ``agent_burst`` and ``agent_bytes``, for each caller by itself. For
    one event loop."""

    def __init__(self, limits: Limits, clock: Callable[[], float] = time.monotonic) -> None:
        self._calls = Rates(limits.agent_rate, limits.agent_burst)
        # The greatest message passes when nothing did before it.
        self._most_bytes = float(limits.message_bytes)
        self._bytes = Rates(limits.agent_bytes, self._most_bytes)
        self._turns = Turns()
        self._clock = clock

    @asynccontextmanager
    async def turn(self, who: str) -> AsyncIterator[None]:
        """The time of one call's message, from reading to the end of decoding it: no other message
        of this caller is in memory meanwhile.

        Raises:
            TimeoutError: its turn does not come within ``LONGEST_S``.
        """
        async with AsyncExitStack() as turn:
            async with asyncio.timeout(LONGEST_S):
                await turn.enter_async_context(self._turns.of(who))
                await self._wait(self._calls, who, 1.0)
            yield

    async def take_bytes(self, who: str, size: int) -> None:
        """Wait until a message of so many bytes may be decoded.

        Raises:
            TimeoutError: that is not within ``LONGEST_S``.
        """
        async with asyncio.timeout(LONGEST_S):
            await self._wait(self._bytes, who, min(float(size), self._most_bytes))

    async def _wait(self, rates: Rates, who: str, amount: float) -> None:
        while (wait_s := rates.take(who, self._clock(), amount)) > 0.0:
            if wait_s > LONGEST_S:
                raise TimeoutError
            await asyncio.sleep(wait_s)
