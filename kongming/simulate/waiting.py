"""Queues of waiting jobs: which of them starts when a slot is freed."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from heapq import heappop, heappush

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
    single queue, number 0. A queue begins with a job that waits, and may have jobs behind it that
    were placed when their patience ended; empty queues are deleted.
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
        self._started = bytearray(len(class_of))
        self._patient: list[tuple[float, int]] = []
        """Heap of the jobs that wait, by the end of their patience; may have some that started."""
        self._overdue: list[int] = []
        """Heap of the jobs that wait although their patience has ended, in order of arrival."""
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
        if (until := self.patient_until(job)) < math.inf:
            heappush(self._patient, (until, job))
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
            return self._start(self._queues[0][0])
        overdue = self._first_overdue(now)
        if overdue != NOWHERE:
            self.forced += not self._policy.admits(self._class_of[overdue], state)
            return self._start(overdue)
        best: tuple[float, int] | None = None
        for job_class, queue in self._queues.items():
            if not self._policy.admits(job_class, state):
                continue
            cost = self._policy.predicted_cost(job_class, state) if self._best_fit else 0.0
            if best is None or (cost, queue[0]) < best:
                best = (cost, queue[0])
        return NOWHERE if best is None else self._start(best[1])

    def wake(self, now: float) -> tuple[int, int] | None:
        """Place the first of the jobs whose patience has ended: the job and its node, or None."""
        job = self._first_overdue(now)
        return None if job == NOWHERE else self._force(job)

    def force(self) -> tuple[int, int] | None:
        """Place the job that has waited longest, ignoring limits: the job and its node, or None."""
        return self._force(min(queue[0] for queue in self._queues.values()))

    def _first_overdue(self, now: float) -> int:
        """Return the job that waits longest of those whose patience has ended, or NOWHERE. It may
        stand behind others of its class: their work, and so their patience, is longer."""
        while self._patient and self._patient[0][0] <= now:
            _, job = heappop(self._patient)
            if not self._started[job]:
                heappush(self._overdue, job)
        while self._overdue and self._started[self._overdue[0]]:
            heappop(self._overdue)
        return self._overdue[0] if self._overdue else NOWHERE

    def _force(self, job: int) -> tuple[int, int] | None:
        node = self._policy.choose(self._class_of[job], forced=True)
        if node == NOWHERE:
            return None
        self.forced += 1
        return self._start(job), node

    def _start(self, job: int) -> int:
        self._started[job] = True
        number = self._class_of[job] if self._policy.selective else 0
        queue = self._queues[number]
        while queue and self._started[queue[0]]:
            queue.popleft()
        if not queue:
            del self._queues[number]
        return job
