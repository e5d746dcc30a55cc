"""The time that a campaign still takes, estimated from its pace so far."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass


@dataclass
class _Part:
    """Steps of one of the campaigns that measure in turns: those done when it began, those done
    now, all; and the seconds that it had."""

    first: int
    step: int
    steps: int
    seconds: float = 0.0

    def seconds_left(self) -> float | None:
        """Return None before two steps."""
        done = self.step - self.first
        return None if done < 2 else self.seconds / done * (self.steps - self.step)


class Pace:
    """Steps and seconds of each part of a campaign. Parts that measure in turns have a pace of
    their own each: a run of a pair and a step of a profile do not take the same time."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._parts: dict[int, _Part] = {}
        self._current: _Part | None = None
        self._since = clock()

    def see(self, part: int, step: int, steps: int) -> None:
        """Note that ``step`` of ``steps`` are done in a part, which measures from now on."""
        self._count()
        current = self._parts.get(part)
        if current is None:
            current = self._parts[part] = _Part(step, step, steps)
        current.step, current.steps = step, steps
        self._current = current

    def seconds_left(self) -> float | None:
        """Estimate the rest of all parts that began. None before two steps of any; infinite while
        only some of them have two."""
        self._count()
        left = [part.seconds_left() for part in self._parts.values()]
        if all(seconds is None for seconds in left):
            return None
        return sum(math.inf if seconds is None else seconds for seconds in left)

    def _count(self) -> None:
        now = self._clock()
        if self._current is not None:
            self._current.seconds += now - self._since
        self._since = now
