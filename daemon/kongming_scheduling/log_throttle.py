"""Warnings that are logged when a problem begins, and again when it ends."""

from __future__ import annotations

import logging
import math
import time

REPEAT_AFTER_S = 600.0

MOST_PROBLEMS = 1000
"""Problems that are remembered; the one that was logged longest ago is forgotten first."""


class LogThrottle:
    """``warn(problem, text)`` logs the text once, until ``clear(problem, ...)``.

    A problem that lasts is logged again after each ``repeat_after_s``.
    """

    def __init__(self, log: logging.Logger, repeat_after_s: float = REPEAT_AFTER_S) -> None:
        self._log = log
        self._repeat_after_s = repeat_after_s
        self._logged_at: dict[str, float] = {}

    @property
    def active(self) -> bool:
        """Return whether any problem has not ended."""
        return bool(self._logged_at)

    def warn(self, problem: str, text: str) -> None:
        now = time.monotonic()
        if now - self._logged_at.get(problem, -math.inf) >= self._repeat_after_s:
            self._logged_at.pop(problem, None)
            self._logged_at[problem] = now
            while len(self._logged_at) > MOST_PROBLEMS:
                del self._logged_at[next(iter(self._logged_at))]
            self._log.warning("%s", text)

    def clear(self, problem: str, text: str) -> None:
        if self._logged_at.pop(problem, None) is not None:
            self._log.info("%s", text)
