"""Messages on their way: bounded in time for each, and in number for each caller.

gRPC keeps what has come of a message until all of it is there, up to the largest that any method
takes. Whoever began many and finished none would fill the memory with them.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from types import TracebackType

_LOOK_S = 0.25
"""Between two looks at what waits: a message that both of them see is slow."""


class Arrivals:
    """``with arrivals.of(who, most):`` is ``async with asyncio.timeout(seconds):`` at a tenth of
    its cost, for what each call does and hardly ever takes long. Of more than ``most`` slow
    messages of one caller those end as well that began first: whoever comes meanwhile finds room.
    For one event loop; no block of a task within another of the same task.

    Raises:
        TimeoutError: at the end of a block that was ended.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._look_s = min(_LOOK_S, seconds)
        # In the order in which they began.
        self._waiting: dict[asyncio.Task[object], _Arrival] = {}
        self._timer: asyncio.TimerHandle | None = None
        # Python 3.11 makes a system call each time it is asked which loop runs.
        self._loop: asyncio.AbstractEventLoop | None = None

    def of(self, who: str, most: int) -> _Arrival:
        """The message that a caller is sending now."""
        return _Arrival(self, who, most)

    def begin(self, arrival: _Arrival) -> None:
        loop = self._loop
        if loop is None:
            loop = self._loop = asyncio.get_running_loop()
        task = asyncio.current_task(loop)
        assert task is not None, "no task"
        arrival.end = loop.time() + self._seconds
        self._waiting[task] = arrival
        if self._timer is None:
            self._timer = loop.call_later(self._look_s, self._look)

    def finish(self) -> bool:
        """Whether the message of this task was left to arrive."""
        task = asyncio.current_task(self._loop)
        assert task is not None
        return self._waiting.pop(task, None) is not None

    def _look(self) -> None:
        """End what is late or too much, and look again. By looks and not by the clock, for a loop
        that was held up has yet to see what came meanwhile."""
        loop = asyncio.get_running_loop()
        now = loop.time()
        slow = Counter(one.who for one in self._waiting.values() if one.slow)
        for task, one in tuple(self._waiting.items()):
            if now >= one.end or (one.slow and slow[one.who] > one.most):
                slow[one.who] -= one.slow
                del self._waiting[task]
                task.cancel()
            one.slow = True
        self._timer = loop.call_later(self._look_s, self._look) if self._waiting else None


class _Arrival:
    """One message. ``slow``: a look has seen it on its way."""

    __slots__ = ("_arrivals", "end", "most", "slow", "who")

    def __init__(self, arrivals: Arrivals, who: str, most: int) -> None:
        self._arrivals = arrivals
        self.who = who
        self.most = most
        self.slow = False
        self.end = 0.0

    def __enter__(self) -> None:
        self._arrivals.begin(self)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._arrivals.finish():
            return
        # As asyncio.timeout: whoever else cancelled the task meanwhile is heard.
        task = asyncio.current_task()
        assert task is not None
        if task.uncancel() == 0 and kind is asyncio.CancelledError:
            raise TimeoutError from error
