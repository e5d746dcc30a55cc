"""End, and wait for, what this process started and did not end itself, when it exits.

Ctrl-C during a start, or just after it, leaves an object that is never closed. What was started
would end by itself, but only after this process.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from kongming.processes.deferred_signals import signals_deferred


class Closable(Protocol):
    def close(self) -> None: ...


_pid = os.getpid()
_open: dict[int, Closable] = {}
_lock = threading.Lock()


@contextmanager
def starting(started: Closable) -> Iterator[None]:
    """Start it in the block; ``started`` is closed at exit unless it is discarded before.

    Ctrl-C during the block is raised at its end, where ``started`` is complete, and closes it.
    """
    try:
        with signals_deferred():
            yield
            with _lock:
                _open[id(started)] = started
    except BaseException:
        if id(started) in _open:
            started.close()
        raise


def discard(started: Closable) -> None:
    with _lock:
        _open.pop(id(started), None)


@atexit.register
def _close_all() -> None:
    # What a parent started is not this process's to end.
    if os.getpid() != _pid:
        return
    with _lock:
        left = list(_open.values())
    for started in left:
        # Another Ctrl-C goes on with the next.
        with contextlib.suppress(Exception, KeyboardInterrupt):
            started.close()
