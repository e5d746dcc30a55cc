"""What may still be spent: buckets that fill with time. Pure: every question has its moment."""

from __future__ import annotations

import math
from dataclasses import dataclass

_BURST = 1.0 / 6.0
"""Share of a window's allowance that may be spent at once; the rest comes evenly."""

_NEARLY = 0.9

HOUR_S = 3600.0
DAY_S = 86400.0


@dataclass(frozen=True, slots=True)
class Cost:
    """What something took: seconds of CPU, seconds on the clock, bytes written."""

    cpu_s: float = 0.0
    wall_s: float = 0.0
    written_bytes: float = 0.0

    def __add__(self, other: Cost) -> Cost:
        return Cost(
            self.cpu_s + other.cpu_s,
            self.wall_s + other.wall_s,
            self.written_bytes + other.written_bytes,
        )

    def towards(self, other: Cost, weight: float) -> Cost:
        """Part of the way to another cost: how an expectation follows what was seen."""
        return Cost(
            self.cpu_s + weight * (other.cpu_s - self.cpu_s),
            self.wall_s + weight * (other.wall_s - self.wall_s),
            self.written_bytes + weight * (other.written_bytes - self.written_bytes),
        )


class Bucket:
    """An allowance of ``most`` in any window of ``window_s`` seconds, up to the last thing bought.

    It starts full and holds a sixth of the allowance; the other five sixths come in evenly, so no
    window sees more than ``most`` (and what one purchase overdrew). What was overdrawn is paid
    back before anything else may begin.
    """

    def __init__(self, most: float, window_s: float, now: float) -> None:
        self.most = most
        self.capacity = _BURST * most
        self.rate = (most - self.capacity) / window_s
        self._level = self.capacity
        self._at = now

    def left(self, now: float) -> float:
        """What may be spent; negative where it is overdrawn."""
        # A clock that went back gives nothing and takes nothing.
        gained = max(0.0, now - self._at) * self.rate
        return min(self.capacity, self._level + gained)

    def spend(self, amount: float, now: float) -> None:
        self._level = self.left(now) - amount
        self._at = max(now, self._at)

    def restore(self, left: float, ago_s: float) -> None:
        """What an earlier life of the agent had left, ``ago_s`` seconds before."""
        self._level = min(self.capacity, left + max(0.0, ago_s) * self.rate)

    def ready_at(self, amount: float, now: float) -> float:
        """When ``amount`` may be spent: now, later, or never (infinity).

        More than it can hold is lent when it is nearly full; small costs that come all the time
        keep it from ever being quite so.
        """
        wanted = min(amount, _NEARLY * self.capacity)
        lacking = wanted - self.left(now)
        if lacking <= 0.0:
            return now if self.capacity > 0.0 or amount <= 0.0 else math.inf
        return now + lacking / self.rate if self.rate > 0.0 else math.inf


class Recent:
    """A sum over the last ``window_s`` seconds, kept in slots of a sixtieth of it."""

    _SLOTS = 60

    def __init__(self, window_s: float, now: float) -> None:
        self._slot_s = window_s / self._SLOTS
        self._began = now
        self._slots: dict[int, float] = {}

    def add(self, amount: float, now: float) -> None:
        slot = int(now // self._slot_s)
        self._slots[slot] = self._slots.get(slot, 0.0) + amount
        for old in [known for known in self._slots if known <= slot - self._SLOTS]:
            del self._slots[old]

    def total(self, now: float) -> float:
        """The sum over the window."""
        oldest = int(now // self._slot_s) - self._SLOTS
        return math.fsum(amount for slot, amount in list(self._slots.items()) if slot > oldest)

    def rate(self, now: float) -> float:
        """Per second, over the window or what has passed of it."""
        passed = min(self._slot_s * self._SLOTS, now - self._began)
        return self.total(now) / max(passed, self._slot_s)
