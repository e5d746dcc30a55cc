"""Long answers with pauses, in which other calls have their turn."""

from __future__ import annotations

import asyncio
import time
from typing import TypeVar

from kongming.steps import Steps

_T = TypeVar("_T")

_PAUSE_S = 0.005
"""An answer that has held the event loop for so long pauses where it can."""


class Pauses:
    """``await pauses.due()`` between parts of an answer lets other calls have their turn, where
    this one has held the event loop for long enough since it last did."""

    def __init__(self) -> None:
        self._begun = time.perf_counter()

    async def due(self) -> None:
        if time.perf_counter() - self._begun > _PAUSE_S:
            await asyncio.sleep(0)
            self._begun = time.perf_counter()


async def with_pauses(steps: Steps[_T]) -> _T:
    """Run ``steps`` to its end and return what it returns."""
    pauses = Pauses()
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]
        await pauses.due()
