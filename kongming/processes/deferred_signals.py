"""Signals that end a command, held back for a moment: for what must not be done by halves."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def signals_deferred() -> Iterator[None]:
    """Deliver signals at the end of the block: Ctrl-C raises KeyboardInterrupt there.

    A start that is interrupted half-way leaves a process that nothing ends, or locks that nothing
    releases. Does nothing in other threads, which signals do not interrupt. Ignored ones stay so.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    deferred: list[int] = []

    def defer(number: int, frame: FrameType | None) -> None:
        deferred.append(number)

    # None: a handler that Python did not set, and cannot set again.
    handlers = {
        number: handler
        for number in ENDING
        if (handler := signal.getsignal(number)) not in (signal.SIG_IGN, None)
    }
    try:
        for number in handlers:
            signal.signal(number, defer)
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
        for missed in deferred:
            signal.raise_signal(missed)
