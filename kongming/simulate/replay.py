"""Discrete-event simulation of a trace on a fleet: exact and deterministic.

Between two events on a node every resident progresses at a constant rate. Each arrival and
departure updates the residents' remaining work and the next job end on that node. All ends share
one heap; an entry is stale, and skipped, once its node has changed.
"""

from __future__ import annotations

import heapq
import math
from array import array
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kongming.arrays import Floats
from kongming.simulate.fleet import Fleet
from kongming.simulate.policies import NOWHERE, Policy
from kongming.simulate.states import States
from kongming.simulate.trace import Trace
from kongming.simulate.waiting import Queueing, Waiting

Progress = Callable[[int], None]
"""Called every ``PROGRESS_EVERY`` arrivals with the number of jobs that have arrived."""

PROGRESS_EVERY = 4096

_WAKE = 1 << 60
"""In place of a node in the heap: a job's patience ends. It is above every node number, so that
departures at the same moment are processed first."""


@dataclass(frozen=True, eq=False, slots=True)
class Outcome:
    """Schedule of n jobs: ``start_s`` and ``end_s`` (n,), and the ``node`` (n,) of each.

    ``busy_s`` is the total time that nodes had at least one resident, weighted by node speed;
    ``shared_s`` the job seconds spent co-located. ``forced`` counts the jobs that were placed when
    their patience ended; ``states`` the distinct node states.
    """

    start_s: Floats
    end_s: Floats
    node: NDArray[np.int32]
    busy_s: float
    shared_s: float
    forced: int
    states: int


def replay(
    trace: Trace,
    fleet: Fleet,
    states: States,
    policy: Policy,
    queueing: Queueing,
    progress: Progress = lambda arrived: None,
) -> Outcome:
    """Place every job of ``trace`` by ``policy``; ``states`` must be built for its job classes."""
    return _Replay(trace, fleet, states, policy, queueing).run(progress)


class _Replay:
    """State of one simulation.

    The lists per node are parallel: ``_jobs[node]``, ``_remaining[node]`` and the residents of
    ``_state[node]`` have one entry per resident, in the same order. ``_remaining`` is as of
    ``_updated_at[node]``. ``_due[node]`` is the end of the next job to finish there and
    ``_next[node]`` its position; a heap entry with another time is stale.
    """

    def __init__(
        self, trace: Trace, fleet: Fleet, states: States, policy: Policy, queueing: Queueing
    ) -> None:
        jobs, nodes = len(trace), fleet.nodes
        self._policy, self._states = policy, states
        # Plain arrays: reading a single number from numpy takes several times as long.
        self._class_of = array("i", trace.classes()[0].tobytes())
        self._arrival = array("d", trace.arrival_s.tobytes())
        self._work = array("d", trace.work_s.tobytes())
        self._waiting = Waiting(policy, self._class_of, self._arrival, self._work, queueing)
        self._start = array("d", bytes(8 * jobs))
        self._end = array("d", bytes(8 * jobs))
        self._node_of = array("i", bytes(4 * jobs))
        kind_of = fleet.kind_of()
        self._speed = [fleet.kinds[kind].speed for kind in kind_of]
        self._state = [states.empty(kind) for kind in kind_of]
        self._jobs: list[list[int]] = [[] for _ in range(nodes)]
        self._remaining: list[list[float]] = [[] for _ in range(nodes)]
        self._updated_at = [0.0] * nodes
        self._due = [math.inf] * nodes
        self._next = [0] * nodes
        self._heap: list[tuple[float, int]] = []
        self._busy = array("d")
        self._busy_since = [0.0] * nodes
        self._shared = 0.0
        for node, state in enumerate(self._state):
            policy.node_changed(node, state)

    def run(self, progress: Progress) -> Outcome:
        heap, waiting = self._heap, self._waiting
        for job, now in enumerate(self._arrival):
            while heap and heap[0][0] <= now:
                self._next_event()
            node = waiting.arrive(job)
            if node != NOWHERE:
                self._fill(job, node, now)
            elif waiting.patient_until(job) < math.inf:
                heapq.heappush(heap, (waiting.patient_until(job), _WAKE))
            if job % PROGRESS_EVERY == 0:
                progress(job)
        while True:
            while heap:
                self._next_event()
            if not waiting:
                break
            # All nodes are idle, and limits reject even those.
            assignment = waiting.force()
            if assignment is None:
                raise AssertionError("A job waits although the fleet is idle.")
            self._fill(*assignment, max(self._arrival[-1], *self._updated_at))
        progress(len(self._arrival))
        return Outcome(
            start_s=np.array(self._start),
            end_s=np.array(self._end),
            node=np.array(self._node_of, dtype=np.int32),
            busy_s=math.fsum(self._busy),
            shared_s=self._shared,
            forced=waiting.forced,
            states=len(self._states),
        )

    def _next_event(self) -> None:
        now, node = heapq.heappop(self._heap)
        if node == _WAKE:
            while (assignment := self._waiting.wake(now)) is not None:
                self._fill(*assignment, now)
        elif self._due[node] == now:
            self._depart(node, now)
            self._refill(node, now)

    def _fill(self, job: int, node: int, now: float) -> None:
        """Place a job, and those that wait for a neighbour which makes others faster."""
        self._place(job, node, now)
        self._refill(node, now)

    def _refill(self, node: int, now: float) -> None:
        waiting, free = self._waiting, self._states.free
        while waiting and free[self._state[node]] > 0:
            job = waiting.next_for(self._state[node], now)
            if job == NOWHERE:
                return
            self._place(job, node, now)

    def _advance(self, node: int, now: float) -> None:
        elapsed = now - self._updated_at[node]
        self._updated_at[node] = now
        remaining = self._remaining[node]
        if elapsed > 0.0 and remaining:
            if len(remaining) > 1:
                self._shared += elapsed * len(remaining)
            for position, rate in enumerate(self._states.rates[self._state[node]]):
                remaining[position] -= elapsed * rate

    def _place(self, job: int, node: int, now: float) -> None:
        self._advance(node, now)
        jobs = self._jobs[node]
        if not jobs:
            self._busy_since[node] = now
        state, position = self._states.added(self._state[node], self._class_of[job])
        jobs.insert(position, job)
        self._remaining[node].insert(position, self._work[job])
        self._start[job] = now
        self._node_of[job] = node
        self._set_state(node, state, now)

    def _depart(self, node: int, now: float) -> None:
        self._advance(node, now)
        position = self._next[node]
        jobs = self._jobs[node]
        self._end[jobs.pop(position)] = now
        del self._remaining[node][position]
        if not jobs:
            self._busy.append((now - self._busy_since[node]) * self._speed[node])
        self._set_state(node, self._states.removed(self._state[node], position), now)

    def _set_state(self, node: int, state: int, now: float) -> None:
        self._state[node] = state
        self._policy.node_changed(node, state)
        soonest, first = math.inf, 0
        remaining = self._remaining[node]
        for position, rate in enumerate(self._states.rates[state]):
            # Rounding may leave a job that ends together with another slightly below 0.
            wait = max(remaining[position], 0.0) / rate
            if wait < soonest:
                soonest, first = wait, position
        self._due[node] = due = now + soonest
        self._next[node] = first
        if soonest < math.inf:
            heapq.heappush(self._heap, (due, node))
