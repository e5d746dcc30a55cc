"""A time limit that is the same for many tasks, with one timer for all of them."""

from __future__ import annotations

import asyncio
from types import TracebackType


class Deadlines:
    """``with deadlines:`` is ``async with asyncio.timeout(seconds):`` at a tenth of its cost, for
    what each call does and hardly ever takes long. For one event loop; no block of a task within
    another of the same task.

    Raises:
        TimeoutError: at the end of a block that took longer.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        # In the order in which they end, for all have as long.
        self._ends: dict[asyncio.Task[object], float] = {}
        self._timer: asyncio.TimerHandle | None = None
        # Python 3.11 makes a system call each time it is asked which loop runs.
        self._loop: asyncio.AbstractEventLoop | None = None

    def __enter__(self) -> None:
        loop = self._loop
        if loop is None:
            loop = self._loop = asyncio.get_running_loop()
        task = asyncio.current_task(loop)
        assert task is not None, "no task"
        self._ends[task] = end = loop.time() + self._seconds
        if self._timer is None:
            self._timer = loop.call_at(end, self._look)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        task = asyncio.current_task(self._loop)
        assert task is not None
        if self._ends.pop(task, None) is not None:
            return
        # As asyncio.timeout: whoever else cancelled it meanwhile is heard.
        if task.uncancel() == 0 and kind is asyncio.CancelledError:
            raise TimeoutError from error

    def _look(self) -> None:
        """End what is late, and look again when the next one would be."""
        loop = asyncio.get_running_loop()
        now, self._timer = loop.time(), None
        while self._ends:
            task, end = next(iter(self._ends.items()))
            if end > now:
                self._timer = loop.call_at(end, self._look)
                return
            del self._ends[task]
            task.cancel()
