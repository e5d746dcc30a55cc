"""Jobs through a fleet, event by event: exact, and the same on every run.

Between two events of a node nothing changes there, so every resident does work at a constant
rate; each arrival and departure brings the residents' remaining work up to date and finds who
ends next. Ends are kept in one heap; an entry whose node has changed since is dropped when met.
"""

from __future__ import annotations

import heapq
import math
from array import array
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kongming.dataset import Floats
from kongming.simulate.fleet import Fleet
from kongming.simulate.policies import NOWHERE, Policy
from kongming.simulate.states import States
from kongming.simulate.trace import Trace
from kongming.simulate.waiting import Queueing, Waiting

Told = Callable[[int], None]
"""Called now and then with how many jobs have arrived."""

TOLD_EVERY = 4096

_WAKE = 1 << 60
"""In place of a node in the heap: a job's patience ends. Who leaves at that moment leaves first."""


@dataclass(frozen=True, eq=False, slots=True)
class Outcome:
    """What became of n jobs: ``start_s`` and ``end_s`` (n,), and the ``node`` (n,) of each.

    ``busy_s`` is how long nodes had a resident at all, all nodes together, each second counted
    with the node's speed; ``shared_s`` the seconds that jobs spent beside others. ``forced``
    jobs were placed when their patience ended; ``states`` were met in all.
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
    told: Told = lambda arrived: None,
) -> Outcome:
    """Place every job of ``trace``, whose classes ``states`` was made for, by ``policy``."""
    return _Replay(trace, fleet, states, policy, queueing).run(told)


class _Replay:
    def __init__(
        self, trace: Trace, fleet: Fleet, states: States, policy: Policy, queueing: Queueing
    ) -> None:
        jobs, nodes = len(trace), fleet.nodes
        self._policy, self._states = policy, states
        # Plain arrays: reading one number of numpy's takes several times as long.
        self._class_of = array("i", trace.classes()[0].tobytes())
        self._arrival = array("d", trace.arrival_s.tobytes())
        self._work = array("d", trace.work_s.tobytes())
        self._waiting = Waiting(policy, self._class_of, self._arrival, self._work, queueing)
        self._start = array("d", bytes(8 * jobs))
        self._end = array("d", bytes(8 * jobs))
        self._where = array("i", bytes(4 * jobs))
        kind_of = fleet.kind_of()
        self._speed = [fleet.kinds[kind].speed for kind in kind_of]
        self._state = [states.empty(kind) for kind in kind_of]
        self._jobs: list[list[int]] = [[] for _ in range(nodes)]
        self._left: list[list[float]] = [[] for _ in range(nodes)]
        self._since = [0.0] * nodes
        self._due = [math.inf] * nodes
        self._next = [0] * nodes
        self._heap: list[tuple[float, int, int]] = []
        self._busy = array("d")
        self._filled_at = [0.0] * nodes
        self._shared = 0.0
        for node, state in enumerate(self._state):
            policy.moved(node, state)

    def run(self, told: Told) -> Outcome:
        heap, waiting = self._heap, self._waiting
        for job, now in enumerate(self._arrival):
            while heap and heap[0][0] <= now:
                self._happen()
            node = waiting.arrive(job)
            if node != NOWHERE:
                self._place(job, node, now)
            elif waiting.patient_until(job) < math.inf:
                heapq.heappush(heap, (waiting.patient_until(job), _WAKE, job))
            if job % TOLD_EVERY == 0:
                told(job)
        while True:
            while heap:
                self._happen()
            if not waiting:
                break
            # All nodes are idle, and limits refuse even those.
            found = waiting.force()
            if found is None:
                raise AssertionError("A job waits on an idle fleet that has no place for it.")
            self._place(*found, max(self._arrival[-1], *self._since))
        told(len(self._arrival))
        return Outcome(
            start_s=np.array(self._start),
            end_s=np.array(self._end),
            node=np.array(self._where, dtype=np.int32),
            busy_s=math.fsum(self._busy),
            shared_s=self._shared,
            forced=waiting.forced,
            states=len(self._states),
        )

    def _happen(self) -> None:
        now, node, job = heapq.heappop(self._heap)
        if node == _WAKE:
            while (found := self._waiting.wake(job, now)) is not None:
                self._place(*found, now)
        elif self._due[node] == now:
            self._depart(node, now)
            self._refill(node, now)

    def _refill(self, node: int, now: float) -> None:
        waiting, free = self._waiting, self._states.free
        while waiting and free[self._state[node]] > 0:
            job = waiting.next_for(self._state[node], now)
            if job == NOWHERE:
                return
            self._place(job, node, now)

    def _advance(self, node: int, now: float) -> None:
        passed = now - self._since[node]
        self._since[node] = now
        left = self._left[node]
        if passed > 0.0 and left:
            if len(left) > 1:
                self._shared += passed * len(left)
            for place, rate in enumerate(self._states.rates[self._state[node]]):
                left[place] -= passed * rate

    def _place(self, job: int, node: int, now: float) -> None:
        self._advance(node, now)
        jobs = self._jobs[node]
        if not jobs:
            self._filled_at[node] = now
        state, place = self._states.added(self._state[node], self._class_of[job])
        jobs.insert(place, job)
        self._left[node].insert(place, self._work[job])
        self._start[job] = now
        self._where[job] = node
        self._changed(node, state, now)

    def _depart(self, node: int, now: float) -> None:
        self._advance(node, now)
        place = self._next[node]
        jobs = self._jobs[node]
        self._end[jobs.pop(place)] = now
        del self._left[node][place]
        if not jobs:
            self._busy.append((now - self._filled_at[node]) * self._speed[node])
        self._changed(node, self._states.removed(self._state[node], place), now)

    def _changed(self, node: int, state: int, now: float) -> None:
        self._state[node] = state
        self._policy.moved(node, state)
        soonest, first = math.inf, 0
        left = self._left[node]
        for place, rate in enumerate(self._states.rates[state]):
            # What two that end together lose in rounding is no work.
            wait = max(left[place], 0.0) / rate
            if wait < soonest:
                soonest, first = wait, place
        self._due[node] = due = now + soonest
        self._next[node] = first
        if soonest < math.inf:
            heapq.heappush(self._heap, (due, node, 0))
