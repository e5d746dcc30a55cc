"""Changes that have not been worked out yet, by slot, and when they came."""

from __future__ import annotations

from collections.abc import Iterable


class Lag:
    """``dirty`` are slots whose company is to be worked out again, ``urgent`` those whose
    assignments have changed: the next question works them out."""

    def __init__(self) -> None:
        self.dirty: set[int] = set()
        self.urgent: set[int] = set()
        self._since: dict[int, float] = {}
        self._now = 0.0

    def __bool__(self) -> bool:
        return bool(self._since)

    def changed(self, slot: int, now: float | None = None) -> None:
        """Note that its readings or residents have changed."""
        self._now = max(self._now, now or 0.0)
        self.dirty.add(slot)
        self._since.setdefault(slot, self._now)

    def reassigned(self, slot: int) -> None:
        """Note that its assignments have changed: no question may miss that."""
        self.changed(slot)
        self.urgent.add(slot)

    def outdated(self, slots: Iterable[int]) -> None:
        """Note that a model is to look at them again, though they are as they were."""
        for slot in slots:
            self._since.setdefault(slot, self._now)

    def drop(self, slot: int) -> None:
        self.dirty.discard(slot)
        self.seen(slot)

    def seen(self, slot: int) -> None:
        """Forget to wait for a slot that all models have seen."""
        self._since.pop(slot, None)
        self.urgent.discard(slot)

    def clear(self) -> None:
        self._since.clear()
        self.urgent.clear()

    def look_at_clock(self, now: float) -> None:
        """Set the time; what came before the first time, from a store, has waited since then."""
        if not self._now:
            self._since = dict.fromkeys(self._since, now)
        self._now = max(self._now, now)

    def waiting(self) -> list[int]:
        """Slots that are worked out themselves, and wait for models."""
        return [slot for slot in self._since if slot not in self.dirty]

    def staleness_s(self, now: float) -> float:
        return max(now - min(self._since.values()), 0.0) if self._since else 0.0
