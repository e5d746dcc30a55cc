"""Restart background work that fails, and notice work that hangs, for as long as the server runs.

Work that ends by an unexpected error is started again; readiness reports it meanwhile. What goes on
in a thread for far longer than it can take is stuck: health reports it, and who supervises the
server starts it again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

log = logging.getLogger(__name__)

AGAIN_S = 1.0
"""How soon work that failed is begun again."""


TICK_S = 1.0
"""How often ``tick`` is called."""


Working = Callable[[str], AbstractContextManager[None]]
"""``Supervisor.working``, or ``unwatched``."""


def unwatched(name: str) -> AbstractContextManager[None]:
    """Work in a thread that is not supervised."""
    return nullcontext()


class Supervisor:
    """Tasks that are begun again where they fail, and work in threads that has a time limit; for
    one event loop.

    ``stuck_s`` is that limit, in seconds of ``tick``: a machine that is busy, suspended or stopped
    ticks slower, and its threads have longer.
    """

    def __init__(self, again_s: float = AGAIN_S, stuck_s: float = 600.0) -> None:
        self._again_s = again_s
        self._stuck_s = stuck_s
        self._failed: dict[str, str] = {}
        self._age_s = 0.0
        self._at_work: dict[object, tuple[str, float]] = {}

    def tick(self) -> None:
        """Another ``TICK_S`` in which the event loop had its turns."""
        self._age_s += TICK_S

    @contextmanager
    def working(self, name: str) -> Iterator[None]:
        """Around work in a thread, from the event loop or from the thread."""
        key = object()
        self._at_work[key] = (name, self._age_s)
        try:
            yield
        finally:
            del self._at_work[key]

    @property
    def stuck(self) -> str | None:
        """Return which work has gone on for too long, in a sentence; None for none."""
        for name, since in list(self._at_work.values()):
            if self._age_s - since > self._stuck_s:
                return f"{name} has not ended for {self._age_s - since:.0f} s."
        return None

    @property
    def failing(self) -> str | None:
        """Return which work failed and was not yet begun again, in a sentence; None for none."""
        for name, error in self._failed.items():
            return f"{name} failed: {error}"
        return None

    def keep(self, name: str, work: Callable[[], Awaitable[None]]) -> asyncio.Task[None]:
        """Begin ``work``, which goes on until it is cancelled or ends by itself."""
        return asyncio.create_task(self._go_on(name, work), name=name)

    async def _go_on(self, name: str, work: Callable[[], Awaitable[None]]) -> None:
        while True:
            begun = asyncio.get_running_loop().call_later(
                self._again_s, self._failed.pop, name, None
            )
            try:
                await work()
                return
            except Exception as error:
                log.exception("%s failed, and is begun again.", name)
                self._failed[name] = type(error).__name__
            finally:
                begun.cancel()
            await asyncio.sleep(self._again_s)
