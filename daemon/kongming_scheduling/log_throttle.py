"""Log lines for when a problem begins, and again when it ends; and never too often."""

from __future__ import annotations

import logging
import math
import time
from collections import deque
from collections.abc import Callable

REPEAT_AFTER_S = 600.0

MOST_PROBLEMS = 1000
"""Problems that are remembered; the one that was logged longest ago is forgotten first."""


class LogThrottle:
    """``warn(problem, text)`` logs the text once, until ``clear(problem, ...)``.

    A problem that lasts is logged again after each ``repeat_after_s``. ``lines_a_minute`` bounds
    the problems that begin: those beyond it are left out, and the next line has their number.
    """

    def __init__(
        self,
        log: logging.Logger,
        repeat_after_s: float = REPEAT_AFTER_S,
        *,
        level: int = logging.WARNING,
        lines_a_minute: int | None = None,
    ) -> None:
        self._log = log
        self._repeat_after_s = repeat_after_s
        self._level = level
        self._lines: deque[float] | None = None
        if lines_a_minute is not None:
            self._lines = deque(maxlen=lines_a_minute)
        self._left_out = 0
        self._logged_at: dict[str, float] = {}

    @property
    def active(self) -> bool:
        """Return whether any problem has not ended."""
        return bool(self._logged_at)

    def warn(self, problem: str, text: str | Callable[[], str]) -> None:
        """Log ``text``, which is computed only where it is a function whose text is due."""
        now = time.monotonic()
        if now - self._logged_at.get(problem, -math.inf) < self._repeat_after_s:
            return
        if self._lines is not None:
            if len(self._lines) == self._lines.maxlen and now - self._lines[0] < 60.0:
                self._left_out += 1
                return
            self._lines.append(now)
        self._logged_at.pop(problem, None)
        self._logged_at[problem] = now
        while len(self._logged_at) > MOST_PROBLEMS:
            del self._logged_at[next(iter(self._logged_at))]
        line = text if isinstance(text, str) else text()
        if self._left_out:
            line += f" ({self._left_out} more were left out.)"
            self._left_out = 0
        self._log.log(self._level, "%s", line)

    def clear(self, problem: str, text: str) -> None:
        if self._logged_at.pop(problem, None) is not None:
            self._log.info("%s", text)
