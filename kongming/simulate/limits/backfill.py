"""First come, first served, with EASY backfill: exact and deterministic.

The first job that waits has a reservation at the earliest time at which, by the planned ends of the
running jobs, enough processors are free; another may start before it if, by its planned length, it
ends by then, or takes processors that are left over even then (Lifka 1995; Mu'alem & Feitelson
2001).
"""

from __future__ import annotations

import heapq
import math
from bisect import insort
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kongming.arrays import Floats
from kongming.simulate.limits.jobs import LimitedJobs


@dataclass(frozen=True, eq=False, slots=True)
class Plan:
    """The times (n,) that the scheduler goes by, in seconds.

    ``kill_s``: a run is ended after it. ``fit_s``: what has to fit into a gap. ``running_s``: how
    long a job that runs is planned to take; once it has taken that, ``kill_s`` is planned.
    """

    kill_s: Floats
    fit_s: Floats
    running_s: Floats


@dataclass(frozen=True, eq=False, slots=True)
class Schedule:
    """Start and end (n,) of each job, whether it was ``killed``, and whether it was started by
    ``backfill`` before a job that came earlier."""

    start_s: Floats
    end_s: Floats
    killed: NDArray[np.bool_]
    backfilled: NDArray[np.bool_]


def easy(
    jobs: LimitedJobs, plan: Plan, progress: Callable[[int], None] = lambda arrived: None
) -> Schedule:
    """Run the queue; ``progress`` is called with the number of jobs that have arrived."""
    return _Queue(jobs, plan).run(progress)


class _Queue:
    """State of one simulation. ``_planned`` are (planned end, job) of the running jobs, sorted."""

    def __init__(self, jobs: LimitedJobs, plan: Plan) -> None:
        n = len(jobs)
        self._arrival, self._needs = jobs.arrival_s.tolist(), jobs.processors.tolist()
        self._kill, self._fit = plan.kill_s.tolist(), plan.fit_s.tolist()
        self._running = plan.running_s.tolist()
        self._takes = np.minimum(jobs.run_s, plan.kill_s).tolist()
        self._killed = jobs.run_s > plan.kill_s
        self._start, self._end = [math.nan] * n, [math.nan] * n
        self._backfilled = np.zeros(n, dtype=np.bool_)
        self._free = jobs.capacity
        self._waiting: list[int] = []
        self._ends: list[tuple[float, int]] = []
        self._planned: list[tuple[float, int]] = []

    def run(self, progress: Callable[[int], None]) -> Schedule:
        arrived, n = 0, len(self._arrival)
        while arrived < n or self._ends:
            first_end = self._ends[0][0] if self._ends else math.inf
            now = min(self._arrival[arrived] if arrived < n else math.inf, first_end)
            while self._ends and self._ends[0][0] <= now:
                self._depart(heapq.heappop(self._ends)[1])
            while arrived < n and self._arrival[arrived] <= now:
                self._waiting.append(arrived)
                arrived += 1
                if arrived % 256 == 0:
                    progress(arrived)
            self._schedule(now)
        return Schedule(np.array(self._start), np.array(self._end), self._killed, self._backfilled)

    def _schedule(self, now: float) -> None:
        waiting = self._waiting
        first = 0
        while first < len(waiting) and self._needs[waiting[first]] <= self._free:
            self._begin(waiting[first], now)
            first += 1
        del waiting[:first]
        if len(waiting) < 2 or not self._free:
            return
        reserved_at, spare = self._reservation(now)
        still_waiting = waiting[:1]
        for job in waiting[1:]:
            needs = self._needs[job]
            ends_before = now + self._fit[job] <= reserved_at
            if needs <= self._free and (ends_before or needs <= spare):
                self._begin(job, now)
                self._backfilled[job] = True
                spare -= 0 if ends_before else needs
            else:
                still_waiting.append(job)
        self._waiting = still_waiting

    def _reservation(self, now: float) -> tuple[float, int]:
        """Return when the first job that waits can start as planned, and the processors left over
        then."""
        planned = self._planned
        while planned[0][0] <= now:
            # It runs longer than planned.
            _, job = planned.pop(0)
            insort(
                planned, (max(self._start[job] + self._kill[job], math.nextafter(now, 9e99)), job)
            )
        free, needs = self._free, self._needs[self._waiting[0]]
        for at, job in planned:
            free += self._needs[job]
            if free >= needs:
                return at, free - needs
        raise AssertionError("no job is wider than the machine")

    def _begin(self, job: int, now: float) -> None:
        self._free -= self._needs[job]
        self._start[job], self._end[job] = now, now + self._takes[job]
        heapq.heappush(self._ends, (self._end[job], job))
        insort(self._planned, (now + self._running[job], job))

    def _depart(self, job: int) -> None:
        self._free += self._needs[job]
        at = next(place for place, entry in enumerate(self._planned) if entry[1] == job)
        del self._planned[at]
