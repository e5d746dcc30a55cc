"""The application that was collected from a log: moments from its start, what is missing repaired
and counted.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from contextlib import suppress
from dataclasses import dataclass, replace

import numpy as np

from kongming.quantities import per_cent
from kongming.records.errors import CannotAnswerError, InputError
from kongming.spark import application as records
from kongming.spark.application import LOCALITIES, SUCCEEDED, Application
from kongming.spark.reading import findings, repairs
from kongming.spark.reading.collecting import END_FAR_MS, FAR_MS, Collector
from kongming.spark.reading.left_tasks import left_tasks
from kongming.spark.reading.lost_stages import absent_stages, complete_stages, planned_stages
from kongming.spark.reading.pauses import pauses
from kongming.spark.reading.seen import SeenStage
from kongming.spark.reading.unregistered import Busy, configured_cores

_CALM_REMOVALS = ("idle", "decommission", "killed by driver", "driver request", "spark.stop")
"""Words in the reason of an executor's removal that was meant."""

REDACTED = "*********(redacted)"

_TASKS = "the tasks that they ran at once"


def assemble(
    collected: Collector,
    id: str,
    attempt: str | None,
    source: str,
    missing: float,
    details: dict[str, str],
) -> Application:
    """Return what the log says of one attempt of an application.

    Raises:
        InputError: it says nothing.
        CannotAnswerError: more than the share ``missing`` of the task ends was dropped.
    """
    if collected.first_ms is None and collected.started_ms is None:
        damage = details.get(findings.DAMAGED_FILES)
        raise InputError(
            f"{source} holds no events of a Spark application"
            + (f" that can be read: {damage}." if damage else "."),
            field="LOG",
            hint="Give the event log of an application: see 'kongming spark conf'.",
        )
    return _Assembly(collected, source, missing).application(id, attempt, details)


class _Assembly:
    def __init__(self, collected: Collector, source: str, missing: float) -> None:
        self.collected, self.source, self.missing = collected, source, missing
        self.running = collected.running()
        self.counts: Counter[str] = collected.counts.copy()
        jobs = collected.jobs.values()
        self.planned = planned_stages(jobs)
        self.counts[findings.ENDLESS_STAGES] = complete_stages(collected.stages, jobs, self.planned)
        self.absent_stages = absent_stages(collected.stages, jobs)
        self.counts[findings.ABSENT_STAGES] = len(self.absent_stages)
        self.start_ms = self._start_ms()
        self.ended_s = self.maybe(self._ended_ms())
        self.last_s = max(self.seconds(collected.last_ms), self.ended_s or 0.0)

    def _start_ms(self) -> int:
        started_ms, first_ms = self.collected.started_ms, self.collected.first_ms
        if started_ms is None or first_ms is None:
            return started_ms or first_ms or 0
        if first_ms - started_ms < FAR_MS and not self.collected.started_late:
            return started_ms
        self.counts[findings.WRONG_START] = 1
        return first_ms

    def _ended_ms(self) -> int | None:
        collected = self.collected
        ended_ms, last_ms = collected.ended_ms, collected.ordered_ms
        if ended_ms is None or not last_ms:
            return ended_ms
        if not collected.ended_early and ended_ms - last_ms < END_FAR_MS:
            return ended_ms
        self.counts[findings.WRONG_END] = 1
        return last_ms

    def seconds(self, ms: int) -> float:
        return max(0.0, (ms - self.start_ms) / 1e3)

    def maybe(self, ms: int | None) -> float | None:
        return None if ms is None else self.seconds(ms)

    def application(self, id: str, attempt: str | None, details: dict[str, str]) -> Application:
        collected, counts = self.collected, self.counts
        jobs = self._jobs()
        stages = self._stages()
        executors = self._executors(stages, details)
        start = collected.start
        counts[findings.LEFT_TASKS] = self._left_tasks(jobs, stages)
        self._count_pauses(jobs, stages, executors, details)
        counts[findings.NO_START] = int(collected.started_ms is None)
        counts[findings.NO_END] = int(self.ended_s is None)
        counts[findings.IMPLAUSIBLE] += collected.tasks.implausible
        counts[findings.CLOCK] += collected.tasks.stepped_back
        counts[findings.REDACTED] = sum(value == REDACTED for value in collected.settings.values())
        return Application(
            id=id,
            attempt=attempt,
            name="" if start is None else start.app_name,
            user="" if start is None else start.user,
            spark_version="" if collected.log is None else collected.log.spark_version,
            started_ms=self.start_ms,
            ended_s=self.ended_s,
            last_s=self.last_s,
            settings=collected.settings,
            executors=executors,
            jobs=jobs,
            stages=stages,
            executions=self._executions(),
            resource_profiles=tuple(
                collected.profiles[profile] for profile in sorted(collected.profiles)
            ),
            driver_gc_s=collected.driver_gc_ms / 1e3 if collected.driver_gc_ms > 0 else None,
            findings=findings.findings(counts, details),
            source=self.source,
        )

    # -- jobs and executions

    def _jobs(self) -> tuple[records.Job, ...]:
        jobs = []
        for number, seen in sorted(self.collected.jobs.items()):
            submitted = self.seconds(seen.submitted_ms or self.start_ms)
            completed = self.maybe(seen.completed_ms)
            properties = seen.start.properties or {}
            execution = properties.get("spark.sql.execution.id") or ""
            jobs.append(
                records.Job(
                    number,
                    tuple(seen.start.stage_ids),
                    submitted,
                    None if completed is None else max(submitted, completed),
                    seen.succeeded,
                    int(execution) if execution.isdecimal() and len(execution) < 19 else None,
                    properties.get("spark.scheduler.pool"),
                    properties.get("spark.jobGroup.id"),
                    properties.get("spark.job.description"),
                )
            )
        self.counts[findings.HEADLESS_JOBS] = self.collected.headless_jobs()
        self.counts[findings.FAILED_JOBS] = sum(job.succeeded is False for job in jobs)
        self.counts[findings.UNFINISHED_JOBS] = sum(job.completed_s is None for job in jobs)
        if jobs:
            # Spark numbers them from 0.
            absent = jobs[-1].id + 1 - len(jobs) - self.collected.headless_jobs()
            self.counts[findings.ABSENT_JOBS] = max(0, absent)
        ran = {stage for stage, _ in self.collected.stages} | self.absent_stages
        self.counts[findings.SKIPPED_STAGES] = sum(
            stage not in ran for job in jobs if job.completed_s is not None for stage in job.stages
        )
        return tuple(jobs)

    def _left_tasks(
        self, jobs: tuple[records.Job, ...], stages: tuple[records.StageAttempt, ...]
    ) -> int:
        """But for jobs that the application's end stopped: it had left them on purpose."""
        end = math.inf
        if self.ended_s is not None and not self.counts[findings.WRONG_END]:
            end = self.ended_s
        failed = [
            job
            for job in jobs
            if job.succeeded is False and job.completed_s is not None and job.completed_s < end
        ]
        planned = {number: stage.number_of_tasks for number, stage in self.planned.items()}
        return left_tasks(failed, stages, planned)

    def _count_pauses(
        self,
        jobs: tuple[records.Job, ...],
        stages: tuple[records.StageAttempt, ...],
        executors: tuple[records.Executor, ...],
        details: dict[str, str],
    ) -> None:
        moments = [
            *(job.submitted_s for job in jobs),
            *(job.completed_s for job in jobs if job.completed_s is not None),
            *(executor.added_s for executor in executors),
            *(each.removed_s for each in executors if each.removed_s is not None),
        ]
        spans = pauses(stages, moments, self.last_s)
        self.counts[findings.PAUSES] = len(spans)
        details[findings.PAUSES] = f"{sum(last - first for first, last in spans):.4g} s in all"

    def _executions(self) -> tuple[records.Execution, ...]:
        executions = []
        for number, seen in sorted(self.collected.executions.items()):
            started, finished = self.seconds(seen.started_ms), self.maybe(seen.finished_ms)
            executions.append(
                records.Execution(
                    number,
                    seen.description,
                    started,
                    None if finished is None else max(started, finished),
                    seen.root,
                    seen.adaptive,
                )
            )
        return tuple(executions)

    # -- stages

    def _stages(self) -> tuple[records.StageAttempt, ...]:
        collected, counts = self.collected, self.counts
        started = self._started()
        base_s = (collected.tasks.base_ms - self.start_ms) / 1e3
        attempts = Counter(stage for stage, _ in collected.stages)
        rows = collected.tasks.by_stage()
        ordered = {}
        total = absent = sum(
            max(1, self.planned[number].number_of_tasks) if number in self.planned else 1
            for number in self.absent_stages
        )
        for key, seen in sorted(collected.stages.items()):
            tasks, twice, early = repairs.put_right(rows[seen.place], base_s)
            counts[findings.DUPLICATES] += twice
            counts[findings.IMPLAUSIBLE] += early
            running = _not_ended(tasks, started.get(key, []))
            dropped = Dropped((), 0)
            if seen.succeeded and seen.info is not None:
                # Of several attempts, an earlier one may have done what a later one was made for.
                alone = attempts[key[0]] == 1
                dropped = _dropped(tasks, running, seen.info.number_of_tasks, alone)
                total += max(seen.info.number_of_tasks, len(tasks))
                counts[findings.FILLED_IN] += len(dropped.started) + dropped.unknown
            ordered[key] = (tasks, running, dropped)
        absent += counts[findings.FILLED_IN]
        if absent > self.missing * total:
            raise CannotAnswerError(
                f"{absent} of {total} tasks have no end in {self.source}: their events were "
                f"dropped. Allowed: {per_cent(100 * self.missing, 'g')}, which are filled in.",
                hint="Allow more with --missing, or record the next run with the settings of "
                "'kongming spark conf'.",
            )
        stages = []
        for key, (tasks, running, dropped) in ordered.items():
            seen = collected.stages[key]
            if dropped.started or dropped.unknown:
                tasks = self._filled_in(tasks, dropped, seen)
            filled_in = set(dropped.started)
            unfinished = [each for each in running if each not in filled_in]
            if unfinished:
                ends = [self._end_of(each, seen) for each in unfinished]
                tasks = repairs.with_unfinished(tasks, unfinished, ends)
                counts[findings.UNFINISHED_TASKS] += len(unfinished)
            if len(tasks):
                self.last_s = max(self.last_s, float(tasks["finish_s"].max()))
            stages.append(self._stage(key, seen, tasks))
        self._count_stages(stages)
        return tuple(stages)

    def _started(self) -> dict[tuple[int, int], list[repairs.Started]]:
        """Tasks of which no end is known, by stage attempt."""
        started = defaultdict(list)
        for event, offset_ms in self.running:
            info = event.task_info
            started[event.stage_id, event.stage_attempt_id].append(
                repairs.Started(
                    self.seconds(info.launch_time + offset_ms),
                    self.collected.executor(info.executor_id, info.host),
                    info.index if info.partition_id < 0 else info.partition_id,
                    info.attempt,
                    LOCALITIES.index(info.locality) if info.locality in LOCALITIES else 4,
                    info.speculative,
                )
            )
        return started

    def _filled_in(self, tasks: np.ndarray, dropped: Dropped, seen: SeenStage) -> np.ndarray:
        assert seen.info is not None
        known = np.union1d(
            [each.partition for each in dropped.started],
            tasks["partition"][tasks["status"] == SUCCEEDED],
        )
        # Of several attempts nothing is, and their number of tasks may be any.
        partitions = np.arange(seen.info.number_of_tasks if dropped.unknown else 0)
        absent = np.setdiff1d(partitions, known)[: dropped.unknown]
        submitted_s = self.maybe(seen.submitted_ms) or 0.0
        span = repairs.StageSpan(
            seen.info.number_of_tasks,
            submitted_s,
            max(submitted_s, self.maybe(seen.ended_ms) or 0.0),
            seen.run_time_s,
            sum(executor.cores for executor in self.collected.executors_seen),
        )
        return repairs.with_filled_in(tasks, dropped.started, absent.tolist(), span)

    def _end_of(self, task: repairs.Started, seen: SeenStage) -> float:
        """The latest moment at which a task without an end can have run."""
        executor = self.collected.executors_seen[task.executor]
        ends = [self.last_s, self.maybe(executor.removed_ms), self.maybe(seen.ended_ms)]
        return min(end for end in ends if end is not None and end >= task.launch_s)

    def _stage(
        self, key: tuple[int, int], seen: SeenStage, tasks: np.ndarray
    ) -> records.StageAttempt:
        info = seen.info
        submitted, completed = self.maybe(seen.submitted_ms), self.maybe(seen.completed_ms)
        if seen.completed_ms is None and seen.ended_ms is not None and len(tasks):
            completed = float(tasks["finish_s"].max())
            submitted = float(tasks["launch_s"].min()) if submitted is None else submitted
        if submitted is not None and completed is not None:
            completed = max(submitted, completed)
        tasks.flags.writeable = False
        return records.StageAttempt(
            stage=key[0],
            attempt=key[1],
            name="" if info is None else info.stage_name,
            parents=() if info is None else tuple(info.parent_ids),
            task_count=len(tasks) if info is None else max(0, info.number_of_tasks),
            submitted_s=submitted,
            completed_s=completed,
            tasks=tasks,
            failure=None if info is None else info.failure_reason,
            rdds=tuple(self._cached(rdd) for rdd in seen.rdds),
            resource_profile=0 if info is None else info.resource_profile_id,
            barrier=any(rdd.barrier for rdd in seen.rdds),
            shuffle_dependency=seen.shuffle,
        )

    def _cached(self, rdd: records.Rdd) -> records.Rdd:
        """Complete an RDD by what its blocks say, where they are in the log."""
        blocks = self.collected.blocks.get(rdd.id)
        if not blocks or rdd.cached_partitions:
            return rdd
        cached = [sizes for sizes in blocks.values() if any(size > 0 for size in sizes)]
        return replace(
            rdd,
            cached_partitions=len(cached),
            memory_bytes=float(sum(memory for memory, _ in cached)),
            disk_bytes=float(sum(disk for _, disk in cached)),
        )

    def _count_stages(self, stages: list[records.StageAttempt]) -> None:
        counts = self.counts
        counts[findings.STAGE_ATTEMPTS] = sum(stage.attempt > 0 for stage in stages)
        counts[findings.FAILED_STAGES] = sum(stage.failure is not None for stage in stages)
        for stage in stages:
            status = stage.tasks["status"]
            counts[findings.FAILED] += int((status == records.FAILED).sum())
            counts[findings.KILLED] += int((status == records.KILLED).sum())
            counts[findings.SPECULATIVE] += int(stage.tasks["speculative"].sum())

    # -- executors

    def _executors(
        self, stages: tuple[records.StageAttempt, ...], details: dict[str, str]
    ) -> tuple[records.Executor, ...]:
        collected = self.collected
        seen_only = [
            place for place, seen in enumerate(collected.executors_seen) if seen.added_ms is None
        ]
        busy = Busy(stages, seen_only)
        sources: Counter[str] = Counter()
        first_job_s = min(
            (self.seconds(job.submitted_ms or 0) for job in collected.jobs.values()),
            default=math.inf,
        )
        executors = []
        reasons: Counter[str] = Counter()
        for place, seen in enumerate(collected.executors_seen):
            added, cores = self.maybe(seen.added_ms), seen.cores
            profile = seen.profile
            if added is None:
                launch_s = busy.first_launch_s(place)
                added = self.last_s if launch_s is None else launch_s
                profile = busy.profile(place)
                cores, source = self._cores(place, profile, busy)
                sources[source] += 1
            elif added > first_job_s:
                self.counts[findings.LATE] += 1
            removed = self.maybe(seen.removed_ms)
            if removed is not None:
                removed = max(added, removed)
                reason = (seen.reason or "").lower()
                if not any(word in reason for word in _CALM_REMOVALS):
                    reasons[(seen.reason or "no reason given").partition("\n")[0][:100]] += 1
            executors.append(
                records.Executor(
                    seen.id,
                    seen.host,
                    max(1, cores),
                    added,
                    removed,
                    seen.reason,
                    tuple((self.seconds(begin), self.maybe(end)) for begin, end in seen.excluded),
                    profile,
                    None if seen.storage is None else float(seen.storage),
                    collected.tasks.peak_storage.get(place),
                )
            )
        self.counts[findings.UNREGISTERED] = sources.total()
        details[findings.UNREGISTERED] = f"their cores are taken from {' and '.join(sources)}"
        self.counts[findings.LOST] = sum(reasons.values())
        self.counts[findings.EXCLUDED] = sum(bool(executor.excluded_s) for executor in executors)
        details[findings.LOST] = "; ".join(reason for reason, _ in reasons.most_common(3))
        return tuple(executors)

    def _cores(self, place: int, profile: int, busy: Busy) -> tuple[int, str]:
        """Cores of an executor that did not register, and what says so."""
        collected = self.collected
        known = collected.profiles.get(profile)
        # The default profile says 1 where no setting does, also of executors with more.
        if known is not None and known.executor_cores and profile != 0:
            return known.executor_cores, "their resource profile"
        cores, setting = configured_cores(collected.settings)
        if cores is not None:
            return cores, setting
        if known is not None and known.task_cpus > 0:
            return busy.cores(place, known.task_cpus), _TASKS
        return busy.cores(place, _number(collected.settings.get("spark.task.cpus", "1"))), _TASKS


def _number(text: str) -> float:
    """Parse a number of at least 1; 1 where it is no number."""
    with suppress(ValueError):
        return max(float(text), 1.0) if math.isfinite(float(text)) else 1.0
    return 1.0


@dataclass(frozen=True)
class Dropped:
    """Tasks of an ended stage attempt without an end: those that are known to have started, and
    how many more there must have been."""

    started: tuple[repairs.Started, ...]
    unknown: int


def _not_ended(tasks: np.ndarray, started: list[repairs.Started]) -> list[repairs.Started]:
    """Those whose end was not read before their start either."""
    if not started:
        return []
    ended = set(zip(tasks["partition"].tolist(), tasks["attempt"].tolist(), strict=True))
    return [each for each in started if (each.partition, each.attempt) not in ended]


def _dropped(
    tasks: np.ndarray, running: list[repairs.Started], task_count: int, alone: bool
) -> Dropped:
    done = tasks["partition"][tasks["status"] == SUCCEEDED]
    # np.unique makes a table of hashes, of 40 bytes a task.
    done.sort()
    done = done[np.append(True, done[1:] != done[:-1])] if len(done) else done
    # A copy of a task that succeeded may well be running still. np.isin sorts both as wide numbers,
    # of 30 bytes a task.
    partitions = np.array([each.partition for each in running], "i8")
    low, high = (np.searchsorted(done, partitions, side) for side in ("left", "right"))
    started = {
        each.partition: each
        for each, absent in zip(running, (low == high).tolist(), strict=True)
        if absent
    }
    unknown = task_count - len(done) - len(started) if alone else 0
    return Dropped(tuple(started.values()), max(0, unknown))
