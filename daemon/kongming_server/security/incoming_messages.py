"""Incoming messages: bounded in time for each, and in number for each caller.

gRPC keeps what has come of a message until all of it is there, up to the largest that any method
takes. Whoever began many and finished none would fill the memory with them.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable
from types import TracebackType
from typing import NamedTuple

_LOOK_S = 0.25
"""Between two looks at what waits: a message that both of them see is slow."""


class Bound(NamedTuple):
    """The slow messages that one caller may have at a time; of more the last ones end, which have
    most still to come, or the first ones (``newest_stay``), so that whoever comes finds room."""

    most: int
    newest_stay: bool = False


class IncomingMessages:
    """``with messages.of(who, bound):`` is ``async with asyncio.timeout(seconds):`` at a tenth of
    its cost, for what each call does and hardly ever takes long. What a caller has above their
    bound ends as well. For one event loop; no block of a task within another of the same task.

    Raises:
        TimeoutError: at the end of a block that took too long.
        Exception: what ``too_many`` gives, at the end of one that was above the bound.
    """

    def __init__(self, seconds: float, too_many: Callable[[], Exception]) -> None:
        self._seconds = seconds
        self.too_many = too_many
        self._look_s = min(_LOOK_S, seconds)
        # In the order in which they began.
        self._waiting: dict[asyncio.Task[object], _Message] = {}
        self._timer: asyncio.TimerHandle | None = None
        # Python 3.11 makes a system call each time it is asked which loop runs.
        self._loop: asyncio.AbstractEventLoop | None = None

    def of(self, who: str, bound: Bound | None = None) -> _Message:
        """The message that a caller is sending now; the same bound for each of a caller's."""
        return _Message(self, who, bound)

    def begin(self, message: _Message) -> None:
        loop = self._loop
        if loop is None:
            loop = self._loop = asyncio.get_running_loop()
        task = asyncio.current_task(loop)
        assert task is not None, "no task"
        message.end = loop.time() + self._seconds
        self._waiting[task] = message
        if self._timer is None:
            self._timer = loop.call_later(self._look_s, self._look)

    def finish(self) -> bool:
        """Return whether the message of this task was left to come."""
        task = asyncio.current_task(self._loop)
        assert task is not None
        return self._waiting.pop(task, None) is not None

    def _look(self) -> None:
        """End what is late or too much, and look again. By looks and not by the clock, for a loop
        that was held up has yet to see what came meanwhile."""
        loop = asyncio.get_running_loop()
        now = loop.time()
        bounded: defaultdict[tuple[str, Bound], list[asyncio.Task[object]]] = defaultdict(list)
        for task, message in tuple(self._waiting.items()):
            if now >= message.end:
                self._end(task)
            elif message.slow and message.bound is not None:
                bounded[message.who, message.bound].append(task)
            message.slow = True
        for (_, bound), slow in bounded.items():
            for task in slow[: -bound.most] if bound.newest_stay else slow[bound.most :]:
                self._waiting[task].above = True
                self._end(task)
        self._timer = loop.call_later(self._look_s, self._look) if self._waiting else None

    def _end(self, task: asyncio.Task[object]) -> None:
        del self._waiting[task]
        task.cancel()


class _Message:
    """One message. ``slow``: a look has seen it unfinished; ``above``: it ended for the bound."""

    __slots__ = ("_messages", "above", "bound", "end", "slow", "who")

    def __init__(self, messages: IncomingMessages, who: str, bound: Bound | None) -> None:
        self._messages = messages
        self.who = who
        self.bound = bound
        self.slow = False
        self.above = False
        self.end = 0.0

    def __enter__(self) -> None:
        self._messages.begin(self)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._messages.finish():
            return
        # As asyncio.timeout: whoever else cancelled the task meanwhile is heard.
        task = asyncio.current_task()
        assert task is not None
        if task.uncancel() == 0 and kind is asyncio.CancelledError:
            raise (self._messages.too_many() if self.above else TimeoutError()) from error
