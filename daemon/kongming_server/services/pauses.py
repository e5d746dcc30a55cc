"""Long answers that let other calls have their turn."""

from __future__ import annotations

import asyncio
import time
from typing import TypeVar

from kongming.engine.steps import Steps

_T = TypeVar("_T")

_TURN_S = 0.005
"""An answer that holds the event loop for longer pauses where it can."""


async def in_turns(steps: Steps[_T]) -> _T:
    """What ``steps`` returns."""
    begun = time.perf_counter()
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]
        if time.perf_counter() - begun > _TURN_S:
            await asyncio.sleep(0)
            begun = time.perf_counter()
