"""Work that goes on as long as the server does: none of it ends without a word.

Whatever ends by an unforeseen error is begun again, and readiness says so meanwhile.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

log = logging.getLogger(__name__)

AGAIN_S = 1.0
"""How soon work that failed is begun again."""


class Supervisor:
    """Tasks that are begun again where they fail; for one event loop."""

    def __init__(self, again_s: float = AGAIN_S) -> None:
        self._again_s = again_s
        self._failed: dict[str, str] = {}

    @property
    def failing(self) -> str | None:
        """Which work failed and was not yet begun again, in a sentence; None for none."""
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
