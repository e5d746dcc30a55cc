"""The pools of Spark's FAIR scheduler."""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field


@dataclass(slots=True)
class Pools:
    """The FAIR scheduler: of the pools with stages to launch, the one with the fewest running tasks
    is served, and in it the stage that FIFO would take.

    ``order`` has entries of former counts and stages too: those that are no longer true are left
    out when they come first.
    """

    ready: dict[str, list[tuple[int, int]]] = field(default_factory=dict)
    running: dict[str, int] = field(default_factory=dict)
    ends: list[tuple[float, str]] = field(default_factory=list)
    order: list[tuple[int, tuple[int, int], str]] = field(default_factory=list)

    def add(self, pool: str, stage: tuple[int, int]) -> None:
        heapq.heappush(self.ready.setdefault(pool, []), stage)
        self.update(pool)

    def update(self, pool: str) -> None:
        """Enter a pool whose running tasks or whose stages have changed."""
        ready = self.ready.get(pool)
        if ready:
            heapq.heappush(self.order, (self.running.get(pool, 0), ready[0], pool))

    def launched(self, pool: str, end: float) -> None:
        self.running[pool] = self.running.get(pool, 0) + 1
        heapq.heappush(self.ends, (end, pool))

    def done(self, pool: str) -> None:
        """The first stage of the pool has no more tasks to launch."""
        heapq.heappop(self.ready[pool])
        self.update(pool)

    def fairest(self, now: float) -> tuple[str, int]:
        """Return the pool that is served, and its stage."""
        changed = set()
        while self.ends and self.ends[0][0] <= now:
            _, pool = heapq.heappop(self.ends)
            self.running[pool] -= 1
            changed.add(pool)
        for pool in changed:
            self.update(pool)
        while True:
            count, stage, pool = self.order[0]
            ready = self.ready[pool]
            if ready and ready[0] == stage and self.running.get(pool, 0) == count:
                return pool, stage[1]
            heapq.heappop(self.order)
