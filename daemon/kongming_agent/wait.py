"""A wait that another thread or a signal handler can end."""

from __future__ import annotations

import os
import select


class Wakeup:
    """``wake`` may be called from anywhere, signal handlers too: it takes no lock."""

    def __init__(self) -> None:
        self._handle = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._poll = select.poll()
        self._poll.register(self._handle, select.POLLIN)

    def wake(self) -> None:
        os.eventfd_write(self._handle, 1)

    def wait(self, seconds: float) -> bool:
        """Wait at most this long; return whether it was woken."""
        if not self._poll.poll(max(0.0, seconds) * 1000.0):
            return False
        os.eventfd_read(self._handle)
        return True

    def close(self) -> None:
        os.close(self._handle)
