"""Coroutines by a clock of their own: what they wait for takes no time, and no load delays it."""

from __future__ import annotations

import asyncio
import math
import selectors
from collections.abc import Callable, Coroutine
from concurrent.futures import Executor, Future
from typing import Any

__all__ = ["InlineExecutor", "run_in_virtual_time"]


class _Jumping(selectors.DefaultSelector):
    """Passes the time that it is to wait for without waiting."""

    def __init__(self) -> None:
        super().__init__()
        self.now_s = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            return super().select()
        events = super().select(0.0)
        if not events and timeout > 0.0:
            # A little more: a sum that is rounded down would be short of the moment for ever.
            self.now_s = math.nextafter(self.now_s + timeout + 1e-9, math.inf)
        return events


class _VirtualTime(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self._jumping = _Jumping()
        super().__init__(self._jumping)

    def time(self) -> float:
        return self._jumping.now_s


class InlineExecutor(Executor):
    """Calls at once: the clock of a virtual time would not wait for a thread."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as error:
            future.set_exception(error)
        return future


def run_in_virtual_time(test: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Run a coroutine in a loop whose ``time`` stands still while anything is to be done, and jumps
    to the next moment that something waits for."""
    with asyncio.Runner(loop_factory=_VirtualTime) as runner:
        runner.run(test())
