"""Replay of jobs, stages and tasks on a priority queue of slots (Spark thesis, Algorithms 1 and 2).

Where Spark differs from the thesis, this follows Spark: jobs that overlap share the slots, by FIFO
or FAIR pools; executors come and go; a barrier stage waits until all of its tasks fit.

Slots are the moments at which they become free, in a heap. A task goes to the slot that is free
first; the stage with the highest priority goes on until another event may change the priorities.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kongming.arrays import Floats
from kongming.quantities import count as counted
from kongming.records.errors import CannotAnswerError
from kongming.spark.model.cluster import Cluster, Dynamic
from kongming.spark.model.fair_pools import Pools
from kongming.spark.model.running_stage import DueCopy, Running, set_aside
from kongming.spark.model.workload import Apart, Workload

_JOB, _STAGE, _LEAVE, _COME, _BACKLOG, _COPY = range(6)


@dataclass(frozen=True, eq=False, slots=True)
class Replayed:
    """``job_spans`` (jobs, 2) and ``stage_spans`` (stages, 2) in seconds, in which a stage may wait
    for slots; ``first_launch_s``: when the first task began, infinite without any; ``busy_s``: task
    seconds; ``executor_s``: executors times the seconds that they were held; ``executors``: the
    most at once, and ``stage_executors`` (stages,) those that were there when a stage began."""

    end_s: float
    job_spans: Floats
    stage_spans: Floats
    first_launch_s: float
    busy_s: float
    executor_s: float
    executors: int
    stage_executors: NDArray[np.intp]


def replay(
    workload: Workload,
    cluster: Cluster,
    lengths: Sequence[Floats] | None = None,
    *,
    driver_factor: float = 1.0,
    launch_interval_s: float = 0.0,
) -> Replayed:
    """Replay an application on a cluster.

    ``lengths``: seconds of each stage's tasks, by default as recorded; ``driver_factor`` multiplies
    the driver's gaps; two launches are ``launch_interval_s`` apart or more.

    Raises:
        CannotAnswerError: no slot, or a barrier stage with more tasks than slots.
    """
    return _Replay(workload, cluster, lengths, driver_factor, launch_interval_s).run()


class _Replay:
    def __init__(
        self,
        workload: Workload,
        cluster: Cluster,
        lengths: Sequence[Floats] | None,
        driver_factor: float,
        launch_interval_s: float,
    ) -> None:
        if cluster.slots < 1:
            raise CannotAnswerError(
                f"No slot for a task of {cluster.task_cpus:g} CPUs (spark.task.cpus) on "
                f"{counted(cluster.executors, 'executor')} of {counted(cluster.cores, 'core')}.",
                hint="Ask for more cores: --cores.",
            )
        self.work, self.cluster = workload, cluster
        self.lengths = [stage.lengths for stage in workload.stages] if lengths is None else lengths
        self.driver, self.interval = driver_factor, launch_interval_s
        self.first_launch, self.last_launch = np.inf, -np.inf
        self.now = 0.0
        self.events: list[tuple[float, int, int, int]] = []
        self.heap: list[float] = []
        self.ready: list[tuple[int, int]] = []  # (job, stage), the order of FIFO
        self.running: dict[int, Running] = {}
        self.waiting: dict[int, Running] = {}  # launched but for copies that are not due
        self.copies: list[DueCopy] = []
        jobs, stages = len(workload.jobs), len(workload.stages)
        self.job_spans, self.stage_spans = np.zeros((jobs, 2)), np.zeros((stages, 2))
        self.children: list[list[int]] = [[] for _ in range(stages)]
        self.open_parents = [len(stage.parents) for stage in workload.stages]
        for number, stage in enumerate(workload.stages):
            for parent in stage.parents:
                self.children[parent].append(number)
        self.followers: list[list[int]] = [[] for _ in range(jobs)]
        self.open_jobs = [len(job.waiting.after) for job in workload.jobs]
        for number, job in enumerate(workload.jobs):
            for other in job.waiting.after:
                self.followers[other].append(number)
        self.open_stages = [len(job.stages) for job in workload.jobs]
        self.started = [False] * jobs
        self.apart: dict[int, list[float]] = {}  # free slots of other resource profiles
        self.pools = Pools() if workload.fair else None
        self.busy = 0.0
        self.held = 0.0
        self.count, self.counted_at = 0, 0.0
        self.most = 0
        self.stage_executors = np.zeros(stages, dtype=np.intp)
        self.wave = 0

    def run(self) -> Replayed:
        self._open_slots()
        for number, open_ in enumerate(self.open_jobs):
            if not open_:
                self._push(self._gap(number), _JOB, number)
        while self.events or self.running:
            if not self.running:
                self.now = max(self.now, self.events[0][0])
                self._take_events(self.now)
            elif not self.heap:
                if not self.events:
                    raise CannotAnswerError("All executors have left before the last task.")
                self.now = max(self.now, self.events[0][0])
                self._take_events(self.now)
            else:
                start = max(self.heap[0], self.now)
                if self.events and self.events[0][0] <= start:
                    self._take_events(self.events[0][0])
                else:
                    self._launch()
        last = float(self.job_spans[:, 1].max()) if len(self.job_spans) else 0.0
        end = last + self.work.end_s * self.driver
        if self.cluster.dynamic is not None:
            self._drop_idle(self.cluster.dynamic, end)
        self._account(end)
        return Replayed(
            end,
            self.job_spans,
            self.stage_spans,
            float(self.first_launch),
            self.busy,
            self.held,
            self.most,
            self.stage_executors,
        )

    def _gap(self, job: int) -> float:
        return self.work.jobs[job].waiting.gap_s * self.driver

    def _push(self, time: float, kind: int, what: int) -> None:
        heapq.heappush(self.events, (time, kind, len(self.events), what))

    # Executors

    def _open_slots(self) -> None:
        cluster, dynamic = self.cluster, self.cluster.dynamic
        if dynamic is not None:
            self.heap = [dynamic.start_s] * (dynamic.least * cluster.slots_each)
            self.count = self.most = dynamic.least
            return
        if not cluster.arrivals:
            self.heap = [0.0] * cluster.slots
            self.count = cluster.executors
        for place, (time, executors) in enumerate(cluster.arrivals):
            own = executors * cluster.slots_each
            self.heap += [time] * (own if cluster.mixed is None else cluster.mixed.arrivals[place])
            self.count += executors
        self.most = self.count
        heapq.heapify(self.heap)
        for place, (time, _) in enumerate(cluster.removals):
            self._push(time, _LEAVE, place)

    def _account(self, now: float) -> None:
        self.held += self.count * max(now - self.counted_at, 0.0)
        self.counted_at = max(now, self.counted_at)

    def _remove(self, place: int, now: float) -> None:
        """The executors of a removal in the log."""
        executors, mixed = self.cluster.removals[place][1], self.cluster.mixed
        own = executors * self.cluster.slots_each
        self._leave(executors, own if mixed is None else mixed.removals[place], now)

    def _leave(self, executors: int, slots: int, now: float) -> None:
        """The slots that are free first go; the log says what became of the others' tasks."""
        self._account(now)
        self.count -= min(executors, self.count)
        for _ in range(min(slots, len(self.heap))):
            heapq.heappop(self.heap)

    def _come(self, executors: int, now: float) -> None:
        self._account(now)
        self.count += executors
        self.most = max(self.most, self.count)
        for _ in range(executors * self.cluster.slots_each):
            heapq.heappush(self.heap, now)

    def _backlog(self, dynamic: Dynamic, now: float) -> None:
        """Ask for executors as ExecutorAllocationManager does: 1, 2, 4, ... while tasks wait."""
        waiting = sum(len(each.lengths) - each.next for each in self.running.values())
        coming = sum(what for _, kind, _, what in self.events if kind == _COME)
        if not waiting:
            self.wave = 0
            return
        active = sum(free > now for free in self.heap)
        wanted = min(-(-(waiting + active) // self.cluster.slots_each), dynamic.most)
        more = min(1 << self.wave, wanted - self.count - coming)
        self.wave += 1
        if more > 0:
            self._push(now + dynamic.start_s, _COME, more)
            self._push(now + dynamic.sustained_s, _BACKLOG, 0)
        else:
            self.wave = 0

    def _drop_idle(self, dynamic: Dynamic, now: float) -> None:
        each = self.cluster.slots_each
        idle = sum(now - free > dynamic.idle_s for free in self.heap) // each
        going = min(idle, self.count - dynamic.least)
        if going > 0:
            # Each left when the time of its last slot was over, not now.
            for free in sorted(self.heap)[each - 1 : going * each : each]:
                self.held -= max(now - max(free + dynamic.idle_s, self.counted_at), 0.0)
            self._leave(going, going * each, now)

    # Jobs and stages

    def _take_events(self, until: float) -> None:
        while self.events and self.events[0][0] <= until:
            time, kind, _, what = heapq.heappop(self.events)
            self.now = max(self.now, time)
            if kind == _JOB:
                self._start_job(what, time)
            elif kind == _STAGE:
                self._start_stage(what, time)
            elif kind == _LEAVE:
                self._remove(what, time)
            elif kind == _COME:
                self._come(what, time)
            elif kind == _COPY:
                self._start_copy(self.copies[what])
            elif self.cluster.dynamic is not None:
                self._backlog(self.cluster.dynamic, time)

    def _start_job(self, number: int, now: float) -> None:
        self.started[number] = True
        self.job_spans[number] = now
        for stage in self.work.jobs[number].stages:
            if not self.open_parents[stage]:
                self._stage_ready(stage)
        if not self.open_stages[number]:
            self._end_job(number)

    def _stage_ready(self, number: int) -> None:
        stage = self.work.stages[number]
        ends = [self.stage_spans[parent, 1] for parent in stage.parents]
        ready = max([self.job_spans[stage.job, 0], *ends])
        self._push(float(ready) + stage.lag_s * self.driver, _STAGE, number)

    def _start_stage(self, number: int, now: float) -> None:
        stage = self.work.stages[number]
        lengths = self.lengths[number]
        self.stage_spans[number] = now
        dynamic = self.cluster.dynamic
        if dynamic is not None:
            self._drop_idle(dynamic, now)
        self.stage_executors[number] = self.count
        if not len(lengths):
            self._end_stage(number, now)
            return
        if not stage.elsewhere:
            self.busy += float(lengths.sum())
        needed = stage.needed
        if needed is not None and len(needed) != len(lengths):
            needed = None
        ready = Running(lengths.tolist(), None if needed is None else needed.tolist(), now)
        if stage.speculation is not None and ready.needed is not None and not stage.barrier:
            set_aside(number, ready, stage.speculation)
        if stage.apart is not None:
            self._run_apart(number, ready, stage.apart)
        elif stage.barrier:
            self._run_barrier(number, ready)
        else:
            self._offer(number, ready, now)

    def _offer(self, number: int, running: Running, now: float) -> None:
        """Enter a stage among those with tasks to launch."""
        job, dynamic = self.work.stages[number].job, self.cluster.dynamic
        self.running[number] = running
        if self.pools is None:
            heapq.heappush(self.ready, (job, number))
        else:
            self.pools.add(self._pool(number), (job, number))
        if dynamic is not None and self.wave == 0:
            self._push(now + dynamic.backlog_s, _BACKLOG, 0)

    def _await_copies(self, number: int, running: Running) -> None:
        """All other tasks are launched: copies of them come when they are due."""
        self.waiting[number] = running
        stage = self.work.stages[number]
        if stage.speculation is None or not running.copies:
            return
        due = running.due_s(stage.speculation, stage.turnover_s)
        for due_s, copy in zip(due, running.copies, strict=True):
            self.copies.append(copy)
            self._push(due_s, _COPY, len(self.copies) - 1)
        running.copies = []

    def _start_copy(self, copy: DueCopy) -> None:
        """Enter a copy that is due, unless its stage is done without it."""
        number = copy.stage
        waiting = self.waiting.get(number)
        running = self.running[number] if waiting is None else waiting
        running.open -= 1
        if copy.needed or self.now < running.end:
            assert running.needed is not None
            running.originals[len(running.lengths)] = copy.original
            running.lengths.append(copy.length)
            running.needed.append(copy.needed)
            if waiting is not None:
                del self.waiting[number]
                self._offer(number, running, self.now)
        elif waiting is not None and not running.open:
            del self.waiting[number]
            self._end_stage(number, running.end - self.work.stages[number].turnover_s)

    def _end_stage(self, number: int, end: float) -> None:
        self.stage_spans[number, 1] = max(end, self.stage_spans[number, 0])
        stage = self.work.stages[number]
        for child in self.children[number]:
            self.open_parents[child] -= 1
            if not self.open_parents[child] and self.started[self.work.stages[child].job]:
                self._stage_ready(child)
        self.open_stages[stage.job] -= 1
        if not self.open_stages[stage.job]:
            self._end_job(stage.job)

    def _end_job(self, number: int) -> None:
        job = self.work.jobs[number]
        ends = [self.stage_spans[stage, 1] for stage in job.stages]
        end = max([self.job_spans[number, 0], *ends]) + job.tail_s * self.driver
        self.job_spans[number, 1] = end
        for follower in self.followers[number]:
            self.open_jobs[follower] -= 1
            if not self.open_jobs[follower]:
                after = self.work.jobs[follower].waiting.after
                begin = max(self.job_spans[other, 1] for other in after)
                self._push(float(begin) + self._gap(follower), _JOB, follower)

    # Tasks

    def _launch(self) -> None:
        limit = self.events[0][0] if self.events else np.inf
        if self.pools is None:
            pool, number = None, self.ready[0][1]
        else:
            pool, number = self.pools.fairest(max(self.heap[0], self.now))
        running = self.running[number]
        self.first_launch = min(self.first_launch, max(self.heap[0], self.now))
        alone = pool is None or len(self.running) == 1
        self._assign(running, number, len(running.lengths) if alone else running.next + 1, limit)
        launched = running.next == len(running.lengths)
        if launched:
            del self.running[number]
        if self.pools is None or pool is None:
            if launched:
                heapq.heappop(self.ready)
        elif launched:
            self.pools.done(pool)
        else:
            self.pools.update(pool)
        if launched and running.open:
            self._await_copies(number, running)
        elif launched:
            self._end_stage(number, running.end - self.work.stages[number].turnover_s)

    def _pool(self, number: int) -> str:
        return self.work.jobs[self.work.stages[number].job].pool

    def _assign(self, running: Running, number: int, last: int, limit: float) -> None:
        """Launch tasks up to ``last`` in the slots that are free before ``limit``."""
        heap, now, lengths = self.heap, self.now, running.lengths
        turnover = self.work.stages[number].turnover_s
        replace, end, at, interval = heapq.heapreplace, running.end, running.next, self.interval
        if running.needed is None and not interval and self.pools is None:
            for length in lengths[at:last] if at else lengths:
                start = heap[0]
                if start < now:
                    start = now
                if start >= limit:
                    break
                at += 1
                finish = start + length + turnover
                replace(heap, finish)
                if finish > end:
                    end = finish
            running.next, running.end = at, end
            return
        pool = self._pool(number)
        while at < last:
            start = max(heap[0], now, self.last_launch + interval)
            if start >= limit:
                # The next event may come before the driver can launch again.
                self.now = max(now, limit)
                break
            finish = start + lengths[at] + turnover
            if at in running.originals:
                original = running.finishes[running.originals[at]]
                if running.needed is not None and running.needed[at]:
                    self._kill(original, finish)
                elif start >= original:  # the original was faster
                    at += 1
                    continue
                else:
                    finish = min(finish, original)
            replace(heap, finish)
            self.last_launch = start
            if self.pools is not None:
                self.pools.launched(pool, finish)
            if running.copies:
                running.starts.append(start)
                running.finishes.append(finish)
            if running.needed is None or running.needed[at]:
                end = max(end, finish)
            at += 1
        running.next, running.end = at, end

    def _kill(self, finish: float, at: float) -> None:
        """The slot of an original is free when its copy has ended."""
        try:
            place = self.heap.index(finish, 1)
        except ValueError:
            return
        self.heap[place] = at
        heapq.heapify(self.heap)

    def _run_barrier(self, number: int, running: Running) -> None:
        if self.cluster.dynamic is not None:
            raise CannotAnswerError(
                f"Stage {self.work.stages[number].attempt.stage} is a barrier, which Spark refuses "
                "to run under dynamic allocation.",
                hint="Estimate fixed numbers of executors: --executors.",
            )
        count = len(running.lengths)
        if count > self.cluster.slots:
            raise CannotAnswerError(
                f"Stage {self.work.stages[number].attempt.stage} is a barrier of {count} tasks, "
                f"more than can run at once in {counted(self.cluster.slots, 'slot')}.",
                hint=f"Ask for {counted(count, 'slot')} or more.",
            )
        count = min(count, len(self.heap))
        start = max([self.now, *(heapq.heappop(self.heap) for _ in range(count))])
        self.first_launch = min(self.first_launch, start)
        ends = [start + length for length in running.lengths]
        for end in ends[:count]:
            heapq.heappush(self.heap, end)
        self._end_stage(number, max(ends))

    def _slots_for(self, apart: Apart) -> tuple[list[float], float]:
        """The slots that a resource profile's tasks run in, and how many each of them takes."""
        shared = self.work.cluster.slots_mean / apart.slots_each
        if apart.slots is None and self.heap and shared >= 1.0:
            return self.heap, shared
        if apart.profile not in self.apart:
            slots = apart.slots or self.cluster.executors * apart.slots_each
            self.apart[apart.profile] = [0.0] * slots
        return self.apart[apart.profile], 1.0

    def _run_apart(self, number: int, running: Running, apart: Apart) -> None:
        """Stages of a resource profile with executors of its own run there, and nothing else does;
        of another one each task takes as many slots as it needs CPUs for, at once."""
        heap, each = self._slots_for(apart)
        stage = self.work.stages[number]
        turnover = stage.turnover_s
        end = running.ready
        for at, length in enumerate(running.lengths):
            # As many tasks as fit into an executor take all of its slots, also where some are left.
            slots = max(int((at + 1) * each) - int(at * each), 1)
            free = [heapq.heappop(heap) for _ in range(min(slots, len(heap)))]
            start = max(free[-1], running.ready)
            self.first_launch = min(self.first_launch, start)
            finish = start + length + turnover
            for _ in free:
                heapq.heappush(heap, finish)
            running.starts.append(start)
            running.finishes.append(finish)
            if running.needed is None or running.needed[at]:
                end = max(end, finish)
        if stage.speculation is not None and running.copies:
            due = running.due_s(stage.speculation, turnover)
            for due_s, copy in sorted(
                zip(due, running.copies, strict=True), key=lambda pair: pair[0]
            ):
                finish = max(heap[0], due_s) + copy.length + turnover
                heapq.heapreplace(heap, finish)
                end = max(end, finish) if copy.needed else end
        self._end_stage(number, end - turnover)
