"""Warnings that are worth a line when they begin, and another when they are over."""

from __future__ import annotations

import logging
import time

AGAIN_S = 600.0
"""What goes on for so long is said again."""


class Once:
    """``warn(what, text)`` says it once, until ``over(what, ...)``."""

    def __init__(self, log: logging.Logger) -> None:
        self._log = log
        self._said: dict[str, float] = {}

    def warn(self, what: str, text: str, *, error: BaseException | None = None) -> bool:
        """Whether a line was written."""
        now = time.monotonic()
        if what in self._said and now - self._said[what] < AGAIN_S:
            return False
        self._said[what] = now
        self._log.warning("%s", text, exc_info=error)
        return True

    def over(self, what: str, text: str) -> None:
        if self._said.pop(what, None) is not None:
            self._log.info("%s", text)
