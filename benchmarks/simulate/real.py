"""Jobs that are really run: alone, side by side, and as a queue under a policy."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

import numpy as np

from kongming.profiling.runs.runner import AnyRunner
from kongming.records.errors import ApplicationRunError
from kongming.simulate import Fleet, PairTable, Queueing, Trace, alike
from kongming.simulate.policies import NOWHERE, Policy, PolicyContext
from kongming.simulate.states import States
from kongming.simulate.waiting import Waiting


@dataclass(frozen=True, slots=True)
class Layout:
    """``cpus[node][slot]``; neighbours are on one node."""

    name: str
    cpus: tuple[tuple[int, ...], ...]

    @property
    def fleet(self) -> Fleet:
        return alike(len(self.cpus), len(self.cpus[0]))


class Bench:
    """Runners of every program for every slot, and the clock that all times are read from.

    A job's time is that of a complete execution, the cost of starting it included: alone, next to
    another and in the queue alike.
    """

    def __init__(self, layout: Layout, runners: Mapping[tuple[str, int, int], AnyRunner]) -> None:
        self.layout = layout
        self._runners = runners
        self.begun = time.monotonic()

    def elapsed(self) -> float:
        return time.monotonic() - self.begun

    def execute(self, app: str, node: int, slot: int) -> float:
        """Seconds of one execution. Raises ApplicationRunError when it failed."""
        start = time.monotonic()
        outcome = self._runners[app, node, slot].run((self.layout.cpus[node][slot],))
        if outcome.error is not None:
            raise ApplicationRunError(f"{app}: {outcome.error}")
        return time.monotonic() - start


def solo_times(
    bench: Bench, apps: Sequence[str], rounds: int, random: Random
) -> dict[str, list[float]]:
    """Seconds alone, the CPUs of the first node by turns."""
    times: dict[str, list[float]] = {app: [] for app in apps}
    for turn in range(rounds):
        for app in random.sample(apps, len(apps)):
            times[app].append(bench.execute(app, 0, turn % len(bench.layout.cpus[0])))
    return times


def side_by_side(
    bench: Bench, first: str, second: str, runs: int
) -> tuple[list[float], list[float]]:
    """Seconds of executions during all of which the other one ran as well, both in a loop."""
    spans: tuple[list[tuple[float, float]], ...] = ([], [])
    failed: list[Exception] = []
    enough = threading.Event()

    def loop(app: str, slot: int) -> None:
        try:
            while not enough.is_set():
                start = bench.elapsed()
                bench.execute(app, 0, slot)
                spans[slot].append((start, bench.elapsed()))
                if all(len(own) >= runs for own in spans):
                    enough.set()
        except Exception as error:
            failed.append(error)
            enough.set()

    threads = [
        threading.Thread(target=loop, args=(app, s), daemon=True)
        for s, app in enumerate((first, second))
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failed:
        raise failed[0]
    both = min(own[-1][1] for own in spans)
    return tuple([end - start for start, end in own if end <= both] for own in spans)  # type: ignore[return-value]


@dataclass(frozen=True, slots=True)
class Ordered:
    """A policy with its way of queueing."""

    make: Callable[[PolicyContext, Trace, PairTable], Policy]
    queueing: Queueing


@dataclass(frozen=True, eq=False, slots=True)
class Ran:
    """Of each job when it started and ended, from the beginning of its queue."""

    start_s: Any
    end_s: Any


def really(bench: Bench, trace: Trace, table: PairTable, ordered: Ordered, seed: int) -> Ran:
    """Run the queue on this machine: arrivals by the clock, decisions by the policy."""
    fleet = bench.layout.fleet
    class_of, class_app, _ = trace.classes()
    states = States(fleet.kinds, table.logs, class_app)
    policy = ordered.make(PolicyContext(fleet, states, Random(seed)), trace, table)
    waiting = Waiting(
        policy,
        class_of.tolist(),
        trace.arrival_s.tolist(),
        trace.work_s.tolist(),
        ordered.queueing,
    )
    state = [states.empty(0)] * fleet.nodes
    for node, node_state in enumerate(state):
        policy.node_changed(node, node_state)
    seats: list[list[int | None]] = [[None] * len(cpus) for cpus in bench.layout.cpus]
    start, end = np.zeros(len(trace)), np.zeros(len(trace))
    ended: queue.SimpleQueue[tuple[int, int, int, Exception | None]] = queue.SimpleQueue()
    begun = time.monotonic()

    def work(job: int, node: int, slot: int) -> None:
        failure = None
        try:
            bench.execute(trace.apps[trace.app_of[job]], node, slot)
        except Exception as error:
            failure = error
        end[job] = time.monotonic() - begun
        ended.put((job, node, slot, failure))

    def place(job: int, node: int) -> None:
        slot = seats[node].index(None)
        seats[node][slot] = job
        state[node] = states.added(state[node], int(class_of[job]))[0]
        policy.node_changed(node, state[node])
        start[job] = time.monotonic() - begun
        threading.Thread(target=work, args=(job, node, slot), daemon=True).start()

    arrived = running = finished = 0
    while finished < len(trace):
        wait = None
        if arrived < len(trace):
            wait = max(float(trace.arrival_s[arrived]) - (time.monotonic() - begun), 0.0)
        try:
            job, node, slot, failure = ended.get(timeout=wait)
        except queue.Empty:
            node = waiting.arrive(arrived)
            if node != NOWHERE:
                place(arrived, node)
                running += 1
            arrived += 1
            continue
        if failure is not None:
            raise failure
        finished += 1
        running -= 1
        seats[node][slot] = None
        gone = states.residents[state[node]].index(int(class_of[job]))
        state[node] = states.removed(state[node], gone)
        policy.node_changed(node, state[node])
        while waiting and states.free[state[node]] > 0:
            following = waiting.next_for(state[node], time.monotonic() - begun)
            if following == NOWHERE:
                break
            place(following, node)
            running += 1
    return Ran(start, end)
