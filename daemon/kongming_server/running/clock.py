"""The server's time: unix seconds whose differences stay right when the system's clock jumps."""

from __future__ import annotations

import time
from collections.abc import Callable

SLEW = 0.1
"""Of each second that passes, the share that may go into catching up with a clock that jumped."""

FOLLOWED_S = 0.5
"""A gap up to this is what time synchronisation does all day: it is followed at once."""


def _since_boot() -> float:
    # Unlike CLOCK_MONOTONIC it goes on while the machine sleeps.
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class SteadyClock:
    """Unix seconds that never go back. A jump of the system's clock is caught up with slowly.

    Reservations end, nodes fall silent and fingerprints age by this clock: a step of an hour must
    do none of that to all of them at once.
    """

    def __init__(
        self,
        wall: Callable[[], float] = time.time,
        steady: Callable[[], float] = _since_boot,
    ) -> None:
        self._wall = wall
        self._steady = steady
        self._followed_at = steady()
        self._offset = wall() - self._followed_at
        self._latest = 0.0

    def now(self) -> float:
        """Unix seconds."""
        self._latest = max(self._latest, self._steady() + self._offset)
        return self._latest

    def follow(self) -> float:
        """Move towards the system's clock; returns the gap before, in seconds. Call it often."""
        steady = self._steady()
        gap = self._wall() - steady - self._offset
        passed = max(0.0, steady - self._followed_at)
        self._followed_at = steady
        step = gap if abs(gap) <= FOLLOWED_S else max(-SLEW * passed, min(SLEW * passed, gap))
        self._offset += step
        return gap
