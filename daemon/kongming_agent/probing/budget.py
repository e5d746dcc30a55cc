"""Budgets as token buckets. Pure: the caller gives the time."""

from __future__ import annotations

import math
from dataclasses import dataclass

_BURST = 1.0 / 6.0
"""Share of a window's allowance that may be spent at once; the rest accrues evenly."""

_NEARLY = 0.9

HOUR_S = 3600.0
DAY_S = 86400.0


@dataclass(frozen=True, slots=True)
class Cost:
    """A cost: seconds of CPU, seconds of wall time, bytes written."""

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
        """Return this cost moved a share of the way to another: the update of an expectation."""
        return Cost(
            self.cpu_s + weight * (other.cpu_s - self.cpu_s),
            self.wall_s + weight * (other.wall_s - self.wall_s),
            self.written_bytes + weight * (other.written_bytes - self.written_bytes),
        )


class Bucket:
    """An allowance of ``most`` in any window of ``window_s`` seconds.

    It starts full and holds a sixth of the allowance; the other five sixths accrue evenly, so no
    window has more than ``most`` (plus the overdraft of one expense). An overdraft is paid back
    before the next expense may begin.
    """

    def __init__(self, most: float, window_s: float, now: float) -> None:
        self.most = most
        self.capacity = _BURST * most
        self.rate = (most - self.capacity) / window_s
        self._level = self.capacity
        self._at = now

    def left(self, now: float) -> float:
        """Return the remaining allowance; negative if it is overdrawn."""
        # A clock that went back changes nothing.
        gained = max(0.0, now - self._at) * self.rate
        return min(self.capacity, self._level + gained)

    def spend(self, amount: float, now: float) -> None:
        self._level = self.left(now) - amount
        self._at = max(now, self._at)

    def restore(self, left: float, ago_s: float) -> None:
        """Restore the allowance that an earlier process had left ``ago_s`` seconds ago."""
        self._level = min(self.capacity, left + max(0.0, ago_s) * self.rate)

    def ready_at(self, amount: float, now: float) -> float:
        """Return when ``amount`` may be spent: now, later, or never (infinity). More than the
        capacity is lent when the bucket is nearly full, since frequent small costs keep it from
        being completely full.
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
        """Return the sum over the window."""
        oldest = int(now // self._slot_s) - self._SLOTS
        return math.fsum(amount for slot, amount in list(self._slots.items()) if slot > oldest)

    def rate(self, now: float) -> float:
        """Return the rate per second, over the window or its elapsed part."""
        passed = min(self._slot_s * self._SLOTS, now - self._began)
        return self.total(now) / max(passed, self._slot_s)
