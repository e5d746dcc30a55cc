"""Contents of the events of a log, gathered in their order: a state machine that knows no file.

What is wrong is counted under a kind and becomes a finding; nothing raises for what a log says.
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Callable, Collection, Iterable
from typing import Any

import msgspec

from kongming.spark import application as records
from kongming.spark.reading import events, findings
from kongming.spark.reading.clock import STEP_MS, DriverClock
from kongming.spark.reading.events import event_of, started_task
from kongming.spark.reading.seen import SeenExecution, SeenExecutor, SeenJob, SeenStage
from kongming.spark.reading.tasks import LATEST_MS, TaskRows

FAR_MS = 86_400_000
"""An application's start that is so long before all other events is wrong."""

END_FAR_MS = 30 * FAR_MS
"""An application's end that is so long after all other events is wrong: a server or a notebook may
have been idle for days before it was stopped."""


class Collector:
    """Takes the lines of a log by ``read``; starts and ends are joined in whichever order they
    come. Moments are milliseconds since the epoch by the driver's clock, had it never been set
    back at ``steps``, which are those of a collector that took the same lines before."""

    def __init__(self, steps: Collection[int] = ()) -> None:
        self.clock = DriverClock(steps)
        self._disordered = False
        self.counts: Counter[str] = Counter()
        self.settings: dict[str, str] = {}
        self.log: events.LogStart | None = None
        self.start: events.ApplicationStart | None = None
        self.others: list[events.ApplicationStart] = []  # of other applications or attempts
        self.started_ms: int | None = None
        self.ended_ms: int | None = None
        self.ended_early = False  # events before its line have later moments
        self._first_ms: int | None = None
        self._earliest_ms = LATEST_MS
        self.tasks = TaskRows()
        self.started: dict[int, tuple[bytes, int]] = {}
        self.stages: dict[tuple[int, int], SeenStage] = {}
        self._places: dict[str, int] = {}
        self.executors_seen: list[SeenExecutor] = []
        self.jobs: dict[int, SeenJob] = {}
        self.executions: dict[int, SeenExecution] = {}
        # What was said of something before its start, or its first task, was seen.
        self._job_ends: dict[int, tuple[int | None, bool | None]] = {}
        self._sql_ends: dict[int, int | None] = {}
        self._adaptive: set[int] = set()
        self._removals: dict[str, tuple[int | None, str | None]] = {}
        self._storage: dict[str, int] = {}
        self._peaks: dict[str, int] = {}
        self.profiles: dict[int, records.ResourceProfile] = {}
        self.blocks: dict[int, dict[tuple[str, str], tuple[int, int]]] = {}
        self._rdds: dict[records.Rdd, records.Rdd] = {}
        self.driver_gc_ms = 0
        self._handlers: dict[type, Callable[[Any], None]] = {
            events.TaskStart: lambda _: None,
            events.TaskEnd: self._task_end,
            events.StageSubmitted: self._stage_event,
            events.StageCompleted: self._stage_event,
            events.JobStart: self._job_start,
            events.JobEnd: self._job_end,
            events.SqlStart: self._sql_start,
            events.SqlEnd: self._sql_end,
            events.SqlAdaptive: self._sql_adaptive,
            events.ExecutorAdded: self._executor_added,
            events.ExecutorRemoved: self._executor_removed,
            events.Excluded: self._excluded,
            events.Unexcluded: self._unexcluded,
            events.BlockManagerAdded: self._block_manager,
            events.BlockUpdated: self._block_updated,
            events.StageExecutorMetrics: self._stage_executor_metrics,
            events.ResourceProfileAdded: self._profile_added,
            events.LogStart: self._log_start,
            events.EnvironmentUpdate: self._environment,
            events.ApplicationStart: self._application_start,
            events.ApplicationEnd: self._application_end,
        }

    def read(self, lines: Iterable[bytes]) -> None:
        """Take lines, each with its end. A broken one is counted."""
        for line in lines:
            if not self._accept(line):
                complete = line.endswith(b"\n")
                self.counts[findings.BROKEN_LINES if complete else findings.CUT_TAIL] += 1

    def _accept(self, line: bytes) -> bool:
        """Take one line; False where it is broken."""
        try:
            number = started_task(line)
            if number is not None:
                # Only those without an end are read, when there are no more lines.
                self.started[number] = line, self.clock.offset_ms
                return True
            event = event_of(line)
            if event is not None:
                self._handlers[type(event)](event)
        except (msgspec.DecodeError, UnicodeDecodeError, struct.error, RecursionError):
            return False
        return True

    @property
    def steps(self) -> frozenset[int]:
        """The steps back of the driver's clock; none where lines are in another order, or in the
        log twice."""
        return frozenset() if self._disordered else self.clock.steps

    @property
    def first_ms(self) -> int | None:
        """The first moment but for the application's start and end; None where there is none."""
        return self._earliest_ms if self._disordered else self._first_ms

    @property
    def last_ms(self) -> int:
        """The latest moment but for the application's start and end; 0 where there is none."""
        return self.clock.latest_ms

    @property
    def started_late(self) -> bool:
        """Return whether the application's start is after the first event, where lines are in
        order."""
        if self.started_ms is None or self._first_ms is None or self._disordered:
            return False
        return self.started_ms > self._first_ms + STEP_MS

    @property
    def ordered_ms(self) -> int:
        """The same without one event that is far ahead of all others, where lines are in order."""
        return self.clock.latest_ms if self._disordered else self.clock.ordered_ms

    def headless_jobs(self) -> int:
        """Return how many jobs ended whose start was not in any line."""
        return len(self._job_ends)

    def running(self) -> list[tuple[events.TaskStart, int]]:
        """The tasks whose end was not in any line, and by what the clock had been set back."""
        tasks = []
        for line, offset_ms in self.started.values():
            try:
                start = events.decode_task_start(line)
            except (msgspec.DecodeError, UnicodeDecodeError):
                self.counts[findings.BROKEN_LINES] += 1
                continue
            info = start.task_info
            numbers = (info.index, info.partition_id, info.attempt)
            if 0 < info.launch_time < LATEST_MS and _fits(numbers):
                self.clock.latest_ms = max(self.last_ms, self._seen(info.launch_time + offset_ms))
                tasks.append((start, offset_ms))
            else:
                self.counts[findings.IMPLAUSIBLE] += 1
        return tasks

    # -- moments

    def _now(self, ms: int | None, *, start: bool = False) -> int | None:
        """The moment of an event, had the driver's clock never been set back; None where there is
        none. ``start``: it is stamped as it is written."""
        if ms is None or not 0 < ms < LATEST_MS:
            return None
        return self._seen(self.clock.pass_by(ms, start=start))

    def _seen(self, ms: int) -> int:
        if self._first_ms is None:
            self._first_ms = ms
            self.tasks.base_ms = self.tasks.base_ms or ms
        self._earliest_ms = min(self._earliest_ms, ms)
        return ms

    # -- tasks

    def _task_end(self, event: events.TaskEnd) -> None:
        info, reason = event.task_info, event.task_end_reason
        if reason is not None and reason.reason == "Resubmitted":
            # It ended before: what it wrote was lost with its executor.
            self.counts[findings.RESUBMITTED] += 1
            return
        started = self.started.pop(info.task_id, None)
        launch_ms, finish_ms = info.launch_time, info.finish_time
        clock = self.clock
        if clock.steady and clock.last_ms <= finish_ms < clock.last_ms + STEP_MS:
            clock.last_ms = clock.latest_ms = finish_ms  # as nearly always
        elif finish_ms:
            self._now(finish_ms)
        if clock.offset_ms:
            launch_ms += self._launch_offset(event, None if started is None else started[1])
            if finish_ms:
                info.finish_time += clock.offset_ms
            if info.getting_result_time:
                info.getting_result_time += clock.offset_ms
        key = (event.stage_id, event.stage_attempt_id)
        stage = self.stages.get(key) or self._stage(key)
        if stage.shuffle is None and event.task_type:
            stage.shuffle = event.task_type == "ShuffleMapTask"
        executor = self.executor(info.executor_id, info.host)
        self.tasks.add(stage.place, executor, launch_ms, event)

    def _launch_offset(self, event: events.TaskEnd, started: int | None) -> int:
        """Return what the clock was behind at the launch: as at the task's end, or as when it was
        ``started``, as the log told until then. A step is seen at the first end after it: of those
        two that by which the task took as long as it ran."""
        now = self.clock.offset_ms
        if started is None or started == now:
            return now
        info, metrics = event.task_info, event.task_metrics
        shown = info.finish_time - info.launch_time
        if metrics is None or shown < metrics.executor_run_time:
            return started
        return now if shown - metrics.executor_run_time <= abs(now - started) / 2 else started

    def _stage(self, key: tuple[int, int]) -> SeenStage:
        stage = self.stages.get(key)
        if stage is None:
            if max(key) > 0x7FFFFFFF or min(key) < 0:
                raise struct.error("no stage has such a number")
            stage = self.stages[key] = SeenStage(self.tasks.new_stage())
        return stage

    # -- stages, jobs, executions

    def _stage_event(self, event: events.StageSubmitted | events.StageCompleted) -> None:
        info = event.stage_info
        stage = self._stage((info.stage_id, info.stage_attempt_id))
        submitted = info.submission_time
        if isinstance(event, events.StageSubmitted):
            repeated = stage.submitted_ms is not None and stage.completed_ms is None
            self._disordered |= stage.completed_ms is not None or repeated
            stage.submitted_ms = self._now(submitted, start=True) or self.last_ms or None
            if stage.completed_ms is not None:
                return  # its completion has said more
        else:
            if stage.submitted_ms is None and submitted is not None:
                stage.submitted_ms = submitted + self.clock.offset_ms
            stage.completed_ms = self._now(info.completion_time) or self.last_ms or None
            stage.run_time_s = _run_time_s(info.accumulables)
        stage.rdds = tuple(self._rdd(rdd) for rdd in info.rdd_info)
        info.rdd_info, info.accumulables = [], []
        stage.info = info

    def _rdd(self, info: events.RddInfo) -> records.Rdd:
        level = info.storage_level
        rdd = records.Rdd(
            info.rdd_id,
            info.name,
            info.number_of_partitions,
            level is not None and (level.use_memory or level.use_disk),
            info.number_of_cached_partitions,
            float(info.memory_size),
            float(info.disk_size),
            info.barrier,
        )
        # Stages share most of theirs.
        return self._rdds.setdefault(rdd, rdd)

    def _job_start(self, event: events.JobStart) -> None:
        properties = event.properties or {}
        event.properties = {key: properties[key] for key in _JOB_PROPERTIES if properties.get(key)}
        submitted = self._now(event.submission_time, start=True) or self.last_ms or None
        if event.job_id in self.jobs:
            self._disordered = True
            return
        job = self.jobs[event.job_id] = SeenJob(event, submitted)
        if event.job_id in self._job_ends:
            self._disordered = True
            job.completed_ms, job.succeeded = self._job_ends.pop(event.job_id)

    def _job_end(self, event: events.JobEnd) -> None:
        completed = self._now(event.completion_time) or self.last_ms or None
        result = event.job_result
        succeeded = None if result is None else result.result == "JobSucceeded"
        job = self.jobs.get(event.job_id)
        if job is None:
            self._job_ends[event.job_id] = completed, succeeded
        else:
            job.completed_ms, job.succeeded = completed, succeeded
            if succeeded:
                job.start.stage_infos = self._without_lines(job.start) or None

    def _without_lines(self, start: events.JobStart) -> list[events.PlannedStage]:
        """Return the stages of a job that succeeded of which the log may lack lines: few or none of
        many, as most have an end or were skipped."""
        last = max(start.stage_ids, default=-1)
        incomplete = []
        for each in start.stage_infos or ():
            stage = self.stages.get((each.stage_id, 0))
            if each.stage_id == last if stage is None else stage.completed_ms is None:
                incomplete.append(each)
        return incomplete

    def _sql_start(self, event: events.SqlStart) -> None:
        started = self._now(event.time, start=True)
        if started is None or event.execution_id in self.executions:
            return
        number = event.execution_id
        self._disordered |= number in self._sql_ends
        self.executions[number] = SeenExecution(
            started,
            event.description,
            event.root_execution_id,
            self._sql_ends.get(number),
            event.adaptive or number in self._adaptive,
        )

    def _sql_end(self, event: events.SqlEnd) -> None:
        execution = self.executions.get(event.execution_id)
        finished = self._now(event.time)
        if execution is None:
            self._sql_ends[event.execution_id] = finished
        else:
            execution.finished_ms = finished

    def _sql_adaptive(self, event: events.SqlAdaptive) -> None:
        self._adaptive.add(event.execution_id)
        if event.execution_id in self.executions:
            self.executions[event.execution_id].adaptive = True

    # -- executors

    def executor(self, id: str, host: str = "") -> int:
        place = self._places.get(id)
        if place is None:
            place = self._places[id] = len(self.executors_seen)
            seen = SeenExecutor(id, host, storage=self._storage.get(id))
            seen.removed_ms, seen.reason = self._removals.get(id, (None, None))
            self.executors_seen.append(seen)
            if id in self._peaks:
                self.tasks.peak_storage[place] = self._peaks[id]
        return place

    def _executor_added(self, event: events.ExecutorAdded) -> None:
        executor = self.executors_seen[self.executor(event.executor_id)]
        info = event.executor_info
        executor.added_ms = self._now(event.timestamp) or self.last_ms or None
        executor.host, executor.profile = info.host, info.resource_profile_id
        executor.cores = max(0, min(info.total_cores, 1 << 20))

    def _executor_removed(self, event: events.ExecutorRemoved) -> None:
        removed = self._now(event.timestamp) or self.last_ms or None
        if event.executor_id in self._places:
            executor = self.executors_seen[self._places[event.executor_id]]
            executor.removed_ms, executor.reason = removed, event.removed_reason
        else:
            self._removals[event.executor_id] = removed, event.removed_reason

    def _excluded(self, event: events.Excluded) -> None:
        moment = self._now(event.time)
        executor = self.executors_seen[self.executor(event.executor_id)]
        if moment is not None:
            executor.exclusions.append((moment, True))

    def _unexcluded(self, event: events.Unexcluded) -> None:
        moment = self._now(event.time)
        executor = self.executors_seen[self.executor(event.executor_id)]
        if moment is not None:
            executor.exclusions.append((moment, False))

    def _block_manager(self, event: events.BlockManagerAdded) -> None:
        self._now(event.timestamp)
        id = event.block_manager_id.executor_id
        if id in self._places or id != "driver":
            self.executors_seen[self.executor(id)].storage = max(0, event.maximum_memory)
        else:
            self._storage[id] = max(0, event.maximum_memory)

    def _block_updated(self, event: events.BlockUpdated) -> None:
        info = event.block_updated_info
        kind, _, rest = info.block_id.partition("_")
        rdd = rest.partition("_")[0]
        if kind == "rdd" and rdd.isdecimal() and len(rdd) < 12:
            where = "" if info.block_manager_id is None else info.block_manager_id.executor_id
            blocks = self.blocks.setdefault(int(rdd), {})
            blocks[info.block_id, where] = (info.memory_size, info.disk_size)

    def _stage_executor_metrics(self, event: events.StageExecutorMetrics) -> None:
        metrics = event.executor_metrics
        if event.executor_id == "driver":
            gc_ms = metrics.minor_gc_time + metrics.major_gc_time
            self.driver_gc_ms = max(self.driver_gc_ms, gc_ms)
        id = event.executor_id
        peak = metrics.on_heap_storage_memory + metrics.off_heap_storage_memory
        if peak <= 0:
            return
        if id in self._places:
            known = self.tasks.peak_storage
            known[self._places[id]] = max(peak, known.get(self._places[id], 0))
        else:
            self._peaks[id] = max(peak, self._peaks.get(id, 0))

    def _profile_added(self, event: events.ResourceProfileAdded) -> None:
        executor, task = event.executor_resource_requests, event.task_resource_requests
        cores, cpus = executor.get("cores"), task.get("cpus")
        known = ("cores", "memory", "offHeap", "memoryOverhead", "pyspark.memory")
        self.profiles[event.profile] = records.ResourceProfile(
            event.profile,
            None if cores is None else int(min(cores.amount, 1 << 20)),
            1.0 if cpus is None else cpus.amount,
            {name: request.amount for name, request in executor.items() if name not in known},
        )

    # -- the application

    def _log_start(self, event: events.LogStart) -> None:
        self.log = event

    def _environment(self, event: events.EnvironmentUpdate) -> None:
        properties = {key: value or "" for key, value in event.spark_properties.items()}
        self.settings.update(properties)

    def _application_start(self, event: events.ApplicationStart) -> None:
        if self.start is None:
            self.start = event
        elif _identity(event) != _identity(self.start):
            self.others.append(event)
            return
        # Where it stands says nothing: executors may have registered before.
        if self.started_ms is None and 0 < event.timestamp < LATEST_MS:
            self.started_ms = event.timestamp
            if self.tasks.empty:
                # Seconds from it are rounded only once.
                self.tasks.base_ms = event.timestamp

    def _application_end(self, event: events.ApplicationEnd) -> None:
        if not 0 < event.timestamp < LATEST_MS:
            return
        clock = self.clock
        latest_ms, ordered_ms = clock.latest_ms, clock.ordered_ms
        self.ended_ms = event.timestamp + clock.offset_ms
        if self.ended_ms < ordered_ms + END_FAR_MS:
            self.ended_ms = clock.pass_by(event.timestamp, start=True)
            clock.latest_ms = latest_ms
        self.ended_early = self.ended_ms < ordered_ms - STEP_MS


_JOB_PROPERTIES = {
    "spark.sql.execution.id",
    "spark.scheduler.pool",
    "spark.jobGroup.id",
    "spark.job.description",
}


def _identity(start: events.ApplicationStart) -> tuple[object, ...]:
    """Return what differs between two applications, and two attempts of one."""
    if start.app_id is None:
        return start.app_name, start.timestamp
    return start.app_id, start.app_attempt_id


def _fits(numbers: tuple[int, int, int]) -> bool:
    """Return whether a task may have this index, partition and attempt."""
    *places, attempt = numbers
    return all(-1 <= place < 1 << 31 for place in places) and 0 <= attempt < 1 << 15


def _run_time_s(accumulables: list[events.Accumulable]) -> float | None:
    """Seconds that all tasks of a stage ran, None where they are not in the log."""
    for each in accumulables:
        if each.name == "internal.metrics.executorRunTime" and isinstance(each.value, int):
            return max(0, min(each.value, LATEST_MS)) / 1e3
    return None
