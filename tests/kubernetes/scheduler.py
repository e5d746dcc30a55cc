"""A simulated kube-scheduler over the simulated API server: the parts that an extender meets.

After schedule_one.go and scheduling_queue.go in pkg/scheduler of Kubernetes 1.35:

- nodes are filtered from where the last search ended, until there are enough that fit
  (``feasible_nodes_to_find``); the extender is shown those alone;
- a pod that no node suits gets a condition with the number of nodes of each reason, and waits;
- any change of a waiting pod, its condition too, makes it due again.

A node fits while it has a free slot. The scheduler's own scores are given, 0 where they are not.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping
from typing import Any

from tests.kubernetes.apiserver import ApiServer
from tests.kubernetes.extenders import Extender

MIN_FEASIBLE_NODES = 100
MAX_NODE_SCORE = 100
MAX_EXTENDER_PRIORITY = 10


def feasible_nodes_to_find(percentage: int, nodes: int) -> int:
    """numFeasibleNodesToFind; ``percentage`` is percentageOfNodesToScore, 0 the default."""
    if nodes < MIN_FEASIBLE_NODES:
        return nodes
    if percentage == 0:
        percentage = max(5, 50 - nodes // 125)
    return max(MIN_FEASIBLE_NODES, nodes * percentage // 100)


class Scheduler:
    """``slots`` are the pods that each node has room for. ``attempts`` are counted by UID."""

    def __init__(
        self,
        api: ApiServer,
        extender: Extender,
        slots: Mapping[str, int],
        *,
        percentage: int = 0,
        own_scores: Mapping[str, int] | None = None,
        weight: int = 5,
    ) -> None:
        self._api = api
        self._extender = extender
        self._free = dict(slots)
        self._percentage = percentage
        self._own_scores = own_scores or {}
        self._weight = weight
        self._start = 0
        self._due: deque[str] = deque()
        self.attempts: Counter[str] = Counter()
        api.listeners.append(self._on_change)

    async def run(self, most_attempts: int = 1000) -> None:
        """Schedule until no pod is due, or after so many attempts in all."""
        while self._due and self.attempts.total() < most_attempts:
            await self._schedule(self._due.popleft())

    def retry(self, uid: str) -> None:
        """What the scheduler does with waiting pods every few minutes, or where a node changes."""
        self._due.append(uid)

    def _on_change(self, pod: dict[str, Any]) -> None:
        uid = pod["metadata"]["uid"]
        if not pod["spec"].get("nodeName") and uid not in self._due:
            self._due.append(uid)

    async def _schedule(self, uid: str) -> None:
        self.attempts[uid] += 1
        pod = self._api.pods[uid]
        shown, reasons = self._feasible()
        passing: list[str] = []
        if shown:
            passing, failed = await self._extender.filter(pod, shown)
            reasons.update(failed.values())
        if not passing:
            counts = ", ".join(sorted(f"{count} {reason}" for reason, count in reasons.items()))
            message = f"0/{len(self._free)} nodes are available: {counts}."
            await self._api.set_condition(uid, message)
            return
        best = passing[0]
        if len(passing) > 1:
            priorities = await self._extender.priorities(pod, passing)
            scale = self._weight * MAX_NODE_SCORE // MAX_EXTENDER_PRIORITY
            best = max(passing, key=lambda n: priorities[n] * scale + self._own_scores.get(n, 0))
        self._free[best] -= 1
        await self._api.bind(uid, best)

    def _feasible(self) -> tuple[list[str], Counter[str]]:
        """Nodes that the extender is shown, and why others before them do not fit."""
        names = list(self._free)
        enough = feasible_nodes_to_find(self._percentage, len(names))
        shown: list[str] = []
        reasons: Counter[str] = Counter()
        for processed in range(len(names)):
            if len(shown) == enough:
                self._start = (self._start + processed) % len(names)
                break
            name = names[(self._start + processed) % len(names)]
            if self._free[name] > 0:
                shown.append(name)
            else:
                reasons["Insufficient cpu"] += 1
        return shown, reasons
