"""Rates at which peers may call: a bucket of calls for each, filled at a steady rate."""

from __future__ import annotations

__all__ = ["Rates"]


class Rates:
    """``rate`` calls per second for each peer over time, ``burst`` at once.

    At most ``peers`` are remembered: those that were quiet longest are forgotten first, which
    gives them a full bucket.
    """

    def __init__(self, rate: float, burst: float, peers: int = 65_536) -> None:
        self._rate = rate
        self._burst = float(burst)
        self._peers = peers
        # Calls left and when that was reckoned, in the order of the last call.
        self._left: dict[str, tuple[float, float]] = {}

    def __len__(self) -> int:
        return len(self._left)

    def take(self, peer: str, now: float, amount: float = 1.0) -> float:
        """Take one call, or what else is counted. 0 where it is allowed; else the seconds after
        which it will be."""
        left, since = self._left.pop(peer, (self._burst, now))
        # A clock that stands still or steps back gives nothing and takes nothing.
        left = min(self._burst, left + max(now - since, 0.0) * self._rate)
        allowed = left >= amount
        self._left[peer] = (left - amount if allowed else left, now)
        if len(self._left) > self._peers:
            del self._left[next(iter(self._left))]
        return 0.0 if allowed else (amount - left) / self._rate
