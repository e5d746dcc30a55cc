"""Jobs that wait, and which of them starts when a slot is freed. Decides, and runs nothing."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from kongming.simulate.policies import NOWHERE, Policy


@dataclass(frozen=True, slots=True)
class Queueing:
    """How jobs wait. ``patience``: after so many times its own work alone, a job takes the best
    free slot whatever the limits say. ``best_fit``: of the waiting jobs that a freed slot admits
    the one that fits best starts, not the one that came first."""

    patience: float = 1.0
    best_fit: bool = False


class Waiting:
    """Jobs by number, in the order of their arrival: of ``class_of`` (n,), that arrive at
    ``arrival`` (n,) and have ``work`` (n,) seconds alone.

    A job waits only while no node has a place for it, so when a node changes no other needs a
    look. A policy that takes whatever is free has one queue; another has one for each class.
    """

    def __init__(
        self,
        policy: Policy,
        class_of: Sequence[int],
        arrival: Sequence[float],
        work: Sequence[float],
        queueing: Queueing,
    ) -> None:
        self._policy = policy
        self._class_of, self._arrival, self._work = class_of, arrival, work
        self._best_fit = queueing.best_fit
        self._patience = queueing.patience if policy.yields else math.inf
        self._queues: dict[int, deque[int]] = {}
        self.forced = 0

    def __bool__(self) -> bool:
        return bool(self._queues)

    def arrive(self, job: int) -> int:
        """The node where the job starts now, or NOWHERE: it waits."""
        job_class = self._class_of[job]
        line = job_class if self._policy.selective else 0
        queue = self._queues.get(line)
        if queue is None:
            node = self._policy.choose(job_class)
            if node != NOWHERE:
                return node
            queue = self._queues[line] = deque()
        queue.append(job)
        return NOWHERE

    def patient_until(self, job: int) -> float:
        """When the job's patience ends; infinite for a policy that does not yield."""
        return self._arrival[job] + self._patience * self._work[job]

    def next_for(self, state: int, now: float) -> int:
        """The job that starts on a node in this state, which has a slot free; or NOWHERE."""
        if not self._queues:
            return NOWHERE
        if not self._policy.selective:
            return self._taken(0)
        best: tuple[bool, float, int] | None = None
        chosen, forced = NOWHERE, False
        for line, queue in self._queues.items():
            job = queue[0]
            admitted = self._policy.admits(line, state)
            overdue = now >= self.patient_until(job)
            if not (admitted or overdue):
                continue
            fit = self._policy.cost(line, state) if self._best_fit and not overdue else 0.0
            key = (not overdue, fit, job)
            if best is None or key < best:
                best, chosen, forced = key, line, not admitted
        if best is None:
            return NOWHERE
        self.forced += forced
        return self._taken(chosen)

    def wake(self, job: int, now: float) -> tuple[int, int] | None:
        """A job whose patience has ended, and the node where it starts, if there is any. It is
        the first of its class: ``job`` itself may have started, or stand behind another."""
        job_class = self._class_of[job]
        queue = self._queues.get(job_class)
        if queue is None or now < self.patient_until(queue[0]):
            return None
        return self._forced_out(job_class)

    def force(self) -> tuple[int, int] | None:
        """The job that has waited longest, and a node for it though limits refuse it."""
        first = min(queue[0] for queue in self._queues.values())
        return self._forced_out(self._class_of[first])

    def _forced_out(self, job_class: int) -> tuple[int, int] | None:
        node = self._policy.choose(job_class, forced=True)
        if node == NOWHERE:
            return None
        self.forced += 1
        return self._taken(job_class if self._policy.selective else 0), node

    def _taken(self, line: int) -> int:
        queue = self._queues[line]
        job = queue.popleft()
        if not queue:
            del self._queues[line]
        return job
