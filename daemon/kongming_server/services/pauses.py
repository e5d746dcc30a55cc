"""Long answers with pauses, in which other calls have their turn."""

from __future__ import annotations

import asyncio
import time
from typing import TypeVar

from kongming.steps import Steps

_T = TypeVar("_T")

_PAUSE_S = 0.005
"""An answer that has held the event loop for so long pauses where it can."""


async def with_pauses(steps: Steps[_T]) -> _T:
    """What ``steps`` returns."""
    begun = time.perf_counter()
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]
        if time.perf_counter() - begun > _PAUSE_S:
            await asyncio.sleep(0)
            begun = time.perf_counter()
