"""Queues of waiting jobs: which of them starts when a slot is freed."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from kongming.records.errors import InputError
from kongming.simulate.policies import NOWHERE, Policy


@dataclass(frozen=True, slots=True)
class Queueing:
    """Queueing options. ``patience``: after waiting this multiple of its solo time, a job takes the
    best free slot regardless of limits. ``best_fit``: among the waiting jobs that a freed slot
    admits, the one with the lowest predicted cost starts instead of the oldest.

    Raises:
        InputError: the patience is not a number from 0.
    """

    patience: float = 1.0
    best_fit: bool = False

    def __post_init__(self) -> None:
        if not self.patience >= 0.0:
            raise InputError(
                "is out of range.", field="--patience", value=self.patience, allowed="0 or more"
            )


class Waiting:
    """Waiting jobs by number, in order of arrival. ``class_of``, ``arrival`` and ``work`` (solo
    seconds) are (n,).

    Invariant: a job waits only while no node admits it, so a change on one node cannot make
    another node available to it. A selective policy has one queue per job class, any other a
    single queue, number 0. Empty queues are deleted.
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
        """Node where the job starts now, or NOWHERE if it has to wait."""
        job_class = self._class_of[job]
        number = job_class if self._policy.selective else 0
        queue = self._queues.get(number)
        if queue is None:
            node = self._policy.choose(job_class)
            if node != NOWHERE:
                return node
            queue = self._queues[number] = deque()
        queue.append(job)
        return NOWHERE

    def patient_until(self, job: int) -> float:
        """Time when the job's patience ends; infinite for a policy that does not yield."""
        return self._arrival[job] + self._patience * self._work[job]

    def next_for(self, state: int, now: float) -> int:
        """Dequeue the job that starts on a node in this state, which has a free slot, or return
        NOWHERE."""
        if not self._queues:
            return NOWHERE
        if not self._policy.selective:
            return self._dequeue(0)
        best: tuple[bool, float, int] | None = None
        chosen, forced = NOWHERE, False
        for job_class, queue in self._queues.items():
            job = queue[0]
            admitted = self._policy.admits(job_class, state)
            overdue = now >= self.patient_until(job)
            if not (admitted or overdue):
                continue
            compare_cost = self._best_fit and not overdue
            cost = self._policy.predicted_cost(job_class, state) if compare_cost else 0.0
            key = (not overdue, cost, job)
            if best is None or key < best:
                best, chosen, forced = key, job_class, not admitted
        if best is None:
            return NOWHERE
        self.forced += forced
        return self._dequeue(chosen)

    def wake(self, job: int, now: float) -> tuple[int, int] | None:
        """Place a job whose patience has ended: the job and its node, or None. The first job of the
        class is placed: ``job`` itself may have started already, or be behind another."""
        job_class = self._class_of[job]
        queue = self._queues.get(job_class)
        if queue is None or now < self.patient_until(queue[0]):
            return None
        return self._force_first(job_class)

    def force(self) -> tuple[int, int] | None:
        """Place the job that has waited longest, ignoring limits: the job and its node, or None."""
        first = min(queue[0] for queue in self._queues.values())
        return self._force_first(self._class_of[first])

    def _force_first(self, job_class: int) -> tuple[int, int] | None:
        node = self._policy.choose(job_class, forced=True)
        if node == NOWHERE:
            return None
        self.forced += 1
        return self._dequeue(job_class if self._policy.selective else 0), node

    def _dequeue(self, number: int) -> int:
        queue = self._queues[number]
        job = queue.popleft()
        if not queue:
            del self._queues[number]
        return job
