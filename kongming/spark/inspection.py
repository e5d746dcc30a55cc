"""Account of the time and the slots of a run, and in words what limits how it scales. Pure.

A slot is what one task takes: ``spark.task.cpus`` cores of an executor that is registered. Tasks
hold theirs from launch to finish, also those that failed or were killed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from kongming.arrays import Floats
from kongming.quantities import count, format_bytes, format_seconds, per_cent
from kongming.records.errors import CannotAnswerError
from kongming.spark.application import SUCCEEDED, Application, StageAttempt
from kongming.spark.gaps import gaps
from kongming.spark.model.driver import DriverTime, driver_time, job_end, measured_s, merged
from kongming.spark.model.executors import executor_slots
from kongming.spark.model.groups import in_order, job_groups

PARTS = (
    *("scheduler_delay", "deserialize", "fetch_wait", "compute", "gc"),
    *("shuffle_write", "serialize", "getting_result"),
)
"""Parts of a task's time, in the order in which they mostly come; ``_s`` of them are TASK's."""

_TASK_SUMS = {
    "input_bytes": ("input_bytes",),
    "shuffle_read_bytes": ("shuffle_local_bytes", "shuffle_remote_bytes"),
    "shuffle_write_bytes": ("shuffle_write_bytes",),
    "spill_bytes": ("memory_spill_bytes", "disk_spill_bytes"),
}


@dataclass(frozen=True, slots=True)
class StageView:
    """One stage attempt. Durations are of successful tasks; ``parts_s`` are sums over all.

    ``skew`` is the longest over the median, ``usual_s``, executors' first tasks left out: what
    these take longer than the median is ``first_s``.
    """

    stage: int
    attempt: int
    name: str
    tasks: int
    failed: int  # or killed
    failed_s: float  # slot seconds of these
    span_s: float | None
    busy_s: float  # slot seconds
    median_s: float
    longest_s: float
    usual_s: float
    skew: float
    first_s: float
    parts_s: dict[str, float]
    sizes: dict[str, float]
    waves: float  # tasks over the slots that were there


@dataclass(frozen=True, slots=True)
class GroupView:
    """One SQL execution, or one job without one. ``gap_s`` is time without any job just before."""

    execution: int | None
    description: str
    jobs: tuple[int, ...]
    start_s: float
    end_s: float
    busy_s: float
    stages: int
    gap_s: float


@dataclass(frozen=True, slots=True)
class SlotUse:
    """Slot seconds of the executors that were registered: busy, and idle for which reason."""

    at_once: int
    executors: int  # the most at once
    busy_s: float
    idle_no_job_s: float
    idle_few_tasks_s: float
    without_s: float  # seconds in which a job ran and no executor was registered

    @property
    def total_s(self) -> float:
        return self.busy_s + self.idle_no_job_s + self.idle_few_tasks_s

    @property
    def utilisation(self) -> float:
        return self.busy_s / self.total_s if self.total_s > 0 else 0.0


@dataclass(frozen=True, slots=True)
class Limit:
    """One thing that keeps more executors from helping, or that wastes those there are.
    ``share`` of the runtime, by which limits are ordered."""

    kind: str
    share: float
    message: str


@dataclass(frozen=True, slots=True)
class Inspection:
    measured_s: float
    driver: DriverTime
    slots: SlotUse
    groups: tuple[GroupView, ...]
    stages: tuple[StageView, ...]
    limits: tuple[Limit, ...]


def inspect(application: Application) -> Inspection:
    """Inspect one run.

    Raises:
        CannotAnswerError: no task has run, or spark.task.cpus is no number.
    """
    if not any(len(stage.tasks) for stage in application.stages):
        raise CannotAnswerError(
            f"No task ran in {application.source or application.id}.",
            hint="Give the log of a run that got as far as its first job.",
        )
    slots = slot_use(application)
    ended_s = _first_ends(application)
    stages = tuple(_stage_view(stage, slots.at_once, ended_s) for stage in application.stages)
    driver = driver_time(application)
    measured = measured_s(application)
    return Inspection(
        measured,
        driver,
        slots,
        _groups(application),
        stages,
        limits(measured, driver, slots, stages, gaps(application)),
    )


# -- slots


def slot_use(application: Application) -> SlotUse:
    """Count slots as executors came and went, and where their time went."""
    end = measured_s(application)
    moments: list[tuple[float, int, int]] = []
    for executor, own in zip(application.executors, executor_slots(application), strict=True):
        removed = end if executor.removed_s is None else min(executor.removed_s, end)
        if executor.added_s < removed:
            moments += [(executor.added_s, own, 1), (removed, -own, -1)]
    jobs = merged(
        (min(job.submitted_s, end), min(job_end(job, application), end)) for job in application.jobs
    )
    there = at_once = executors = most_executors = 0
    total = in_jobs = without = previous = 0.0
    moments.sort()
    passed = np.diff(_covered(jobs, [0.0, *(moment for moment, _, _ in moments)])).tolist()
    for (moment, change, come), covered in zip(moments, passed, strict=True):
        total += there * (moment - previous)
        in_jobs += there * covered
        without += covered if not there else 0.0
        there, executors, previous = there + change, executors + come, moment
        at_once, most_executors = max(at_once, there), max(most_executors, executors)
    busy = sum(
        float((stage.tasks["finish_s"] - stage.tasks["launch_s"]).sum())
        for stage in application.stages
    )
    busy = min(busy, total)
    return SlotUse(
        max(1, at_once),
        most_executors,
        busy,
        total - in_jobs,
        max(0.0, in_jobs - busy),
        without,
    )


def _covered(spans: Sequence[tuple[float, float]], moments: Sequence[float]) -> Floats:
    """Seconds up to each of the moments that lie in disjoint spans, which are in order."""
    first, last = np.array(spans).reshape(-1, 2).T
    before = np.searchsorted(first, moments)
    covered = np.concatenate([[0.0], np.cumsum(last - first)])[before]
    # The last span that has begun may go on.
    beyond = np.concatenate([[0.0], last])[before] - moments
    seconds: Floats = covered - np.where(before > 0, np.maximum(beyond, 0.0), 0.0)
    return seconds


# -- stages and groups


def _first_ends(application: Application) -> np.ndarray:
    """Return when each executor's first task ended; the last place is for tasks of no known
    executor."""
    ends = np.full(len(application.executors) + 1, np.inf)
    for stage in application.stages:
        np.minimum.at(ends, stage.tasks["executor"], stage.tasks["finish_s"])
    ends[-1] = -np.inf
    return ends


def _stage_view(stage: StageAttempt, slots: int, ended_s: np.ndarray) -> StageView:
    tasks = stage.tasks
    durations = tasks["finish_s"] - tasks["launch_s"]
    succeeded = tasks["status"] == SUCCEEDED
    # An executor's tasks until one has ended load classes, and start workers of Python.
    first = tasks["launch_s"] < ended_s[tasks["executor"]]
    good, warm = durations[succeeded], durations[succeeded & ~first]
    median, longest = (float(np.median(good)), float(good.max())) if len(good) else (0.0, 0.0)
    usual = float(np.median(warm)) if len(warm) else median
    extra = durations[succeeded & first] - usual
    known = stage.submitted_s is not None and stage.completed_s is not None
    return StageView(
        stage.stage,
        stage.attempt,
        stage.name,
        len(tasks),
        int((~succeeded).sum()),
        float(durations[~succeeded].sum()),
        (stage.completed_s or 0.0) - (stage.submitted_s or 0.0) if known else None,
        float(durations.sum()),
        median,
        longest,
        usual,
        float(warm.max()) / usual if len(warm) and usual > 0 else 1.0,
        float(extra[extra > 0].sum()),
        {part: float(tasks[f"{part}_s"].sum(dtype="f8")) for part in PARTS},
        {
            name: float(sum(tasks[column].sum(dtype="f8") for column in columns))
            for name, columns in _TASK_SUMS.items()
        },
        len(tasks) / slots,
    )


def _groups(application: Application) -> tuple[GroupView, ...]:
    jobs = in_order(application)
    busy: dict[int, float] = {}
    attempts: dict[int, int] = {}
    for stage in application.stages:
        spent = float((stage.tasks["finish_s"] - stage.tasks["launch_s"]).sum())
        busy[stage.stage] = busy.get(stage.stage, 0.0) + spent
        attempts[stage.stage] = attempts.get(stage.stage, 0) + 1
    descriptions = {each.id: each.description for each in application.executions}
    views = []
    covered = 0.0
    counted: set[int] = set()
    for group in job_groups(jobs):
        own = [jobs[place] for place in group.jobs]
        # A stage that several jobs name ran for the first of them.
        stages = {stage for job in own for stage in job.stages if stage in busy} - counted
        counted |= stages
        begin, end = (
            min(job.submitted_s for job in own),
            max(job_end(job, application) for job in own),
        )
        views.append(
            GroupView(
                group.execution,
                _description(
                    descriptions.get(-1 if group.execution is None else group.execution),
                    own[0].description,
                ),
                tuple(job.id for job in own),
                begin,
                end,
                sum(busy[stage] for stage in stages),
                sum(attempts[stage] for stage in stages),
                max(0.0, begin - covered),
            )
        )
        covered = max(covered, end)
    return tuple(views)


def _description(*texts: str | None) -> str:
    return next((line for text in texts if text and (line := text.strip().partition("\n")[0])), "")


# -- what limits

_WORTH_SAYING = 0.02
"""A limit of a smaller share of the runtime, or of the slots' time, is not named."""

_SKEWED = 2.0
_SHORT_S = 0.1


def limits(
    measured_s: float,
    driver: DriverTime,
    slots: SlotUse,
    stages: Sequence[StageView],
    lacks: Sequence[str] = (),
) -> tuple[Limit, ...]:
    """Return what keeps more executors from helping, the largest share first. ``lacks``: what the
    log does not have, whose time cannot be separated from the driver's."""
    candidates = [
        *_of_driver(measured_s, driver, lacks),
        *_of_waiting(measured_s, slots),
        *_of_width(slots, stages),
        *_of_skew(measured_s, stages),
        *_of_tasks(slots, stages),
        *_of_parts(slots, stages),
    ]
    named = sorted(
        (each for each in candidates if each.share >= _WORTH_SAYING), key=lambda limit: -limit.share
    )
    widest = max(stages, key=lambda stage: stage.tasks)
    return (
        *named,
        Limit(
            "widest-stage",
            0.0,
            f"The widest stage ({_named(widest)}) has {widest.tasks} tasks: beyond as many slots "
            f"no more can work at once. This run had {slots.at_once}.",
        ),
    )


def _of_driver(measured_s: float, driver: DriverTime, lacks: Sequence[str]) -> list[Limit]:
    if measured_s <= 0:
        return []
    ending = f"But {'; '.join(lacks)}." if lacks else "No executor shortens that."
    return [
        Limit(
            "driver",
            driver.total_s / measured_s,
            f"For {_time(driver.total_s)} of {_time(measured_s)} the driver "
            f"worked and no job ran: {_time(driver.startup_s)} until the first job, "
            f"{_time(driver.between_jobs_s)} between jobs, "
            f"{_time(driver.end_s)} after the last. {ending}",
        ),
        Limit(
            "between-stages",
            driver.between_stages_s / measured_s,
            f"For {_time(driver.between_stages_s)} a job ran and none of its stages did: "
            "the driver planned.",
        ),
    ]


def _of_waiting(measured_s: float, slots: SlotUse) -> list[Limit]:
    if measured_s <= 0:
        return []
    return [
        Limit(
            "no-executors",
            slots.without_s / measured_s,
            f"For {_time(slots.without_s)} of {_time(measured_s)} a job ran and no executor was "
            "registered: they had not come yet, or had left. Executors that are kept are there.",
        )
    ]


def _of_width(slots: SlotUse, stages: Sequence[StageView]) -> list[Limit]:
    narrow = [stage for stage in stages if stage.tasks < slots.at_once and stage.span_s]
    text = "while jobs ran, slots waited for the last tasks of stages."
    if narrow:
        worst = max(narrow, key=lambda stage: (stage.span_s or 0.0) * (slots.at_once - stage.tasks))
        text = (
            f"{len(narrow)} of {len(stages)} stages had fewer tasks than the {slots.at_once} "
            f"slots; {_named(worst)} cost most, with {count(worst.tasks, 'task')} for "
            f"{_time(worst.span_s)}. More partitions would use them."
        )
    share = slots.idle_few_tasks_s / slots.total_s if slots.total_s > 0 else 0.0
    return [Limit("few-tasks", share, f"Slots idle within jobs, {_percent(share)} of them: {text}")]


def _of_skew(measured_s: float, stages: Sequence[StageView]) -> list[Limit]:
    # What a stage would gain were its longest task as twice the median; others may fill the wait.
    excess = {
        place: stage.usual_s * (stage.skew - _SKEWED)
        for place, stage in enumerate(stages)
        if stage.tasks > 1 and stage.skew > _SKEWED
    }
    if not excess or measured_s <= 0:
        return []
    worst = stages[max(excess, key=lambda place: excess[place])]
    return [
        Limit(
            "skew",
            min(1.0, sum(excess.values()) / measured_s),
            f"Skew: in {count(len(excess), 'stage')} the longest task takes more than twice the "
            f"median; the worst is {_named(worst)}: {_time(worst.usual_s * worst.skew)} against "
            f"{_time(worst.usual_s)}. More slots do not shorten one task.",
        )
    ]


def _of_tasks(slots: SlotUse, stages: Sequence[StageView]) -> list[Limit]:
    if slots.busy_s <= 0:
        return []
    spilling = [stage for stage in stages if stage.sizes["spill_bytes"] > 0]
    spilt = sum(stage.sizes["spill_bytes"] for stage in spilling)
    short = [stage for stage in stages if stage.median_s < _SHORT_S and stage.waves > 2]
    ended_badly = sum(stage.failed for stage in stages)
    wasted = sum(stage.failed_s for stage in stages)
    first_s = sum(stage.first_s for stage in stages)
    return [
        Limit(
            "first-tasks",
            first_s / slots.busy_s,
            f"The first tasks of executors took {_time(first_s)} more than others of their "
            "stages: they load classes and start workers. With more executors, more are first.",
        ),
        Limit(
            "spill",
            sum(stage.busy_s for stage in spilling) / slots.busy_s,
            f"{count(len(spilling), 'stage')} spilled {format_bytes(spilt)}: tasks need more "
            "execution memory than they get. More memory or more partitions makes them faster.",
        ),
        Limit(
            "short-tasks",
            sum(stage.busy_s for stage in short) / slots.busy_s,
            f"Tasks of {count(len(short), 'stage')} take less than {_time(_SHORT_S)}: the "
            "driver may not launch them fast enough for more slots.",
        ),
        Limit(
            "failures",
            wasted / slots.busy_s,
            f"{count(ended_badly, 'task')} failed or {'was' if ended_badly == 1 else 'were'} "
            "killed, after holding a slot.",
        ),
    ]


_PART_WORDS = {
    "scheduler_delay": "waiting for the driver (scheduler delay)",
    "deserialize": "deserialising tasks",
    "fetch_wait": "waiting for shuffle blocks of others",
    "gc": "in garbage collection",
    "shuffle_write": "writing shuffle blocks",
    "getting_result": "sending results to the driver",
}
_MUCH_OF_A_TASK = 0.1


def _of_parts(slots: SlotUse, stages: Sequence[StageView]) -> list[Limit]:
    total = sum(stage.busy_s for stage in stages)
    part_limits = []
    for part, words in _PART_WORDS.items():
        spent = sum(stage.parts_s[part] for stage in stages)
        if total > 0 and spent > _MUCH_OF_A_TASK * total:
            share = spent / total
            worst = max(stages, key=lambda stage: stage.parts_s[part])
            part_limits.append(
                Limit(
                    part.replace("_", "-"),
                    share * slots.utilisation,
                    f"Tasks spent {_percent(share)} of their time {words}, most in "
                    f"{_named(worst)}.",
                )
            )
    return part_limits


def _named(stage: StageView) -> str:
    attempt = f".{stage.attempt}" if stage.attempt else ""
    return f"stage {stage.stage}{attempt}" + (f", {stage.name}" if stage.name else "")


def _time(seconds: float | None) -> str:
    """Logs count milliseconds: less is nothing."""
    return "0 s" if seconds is not None and seconds < 5e-4 else format_seconds(seconds)


def _percent(share: float) -> str:
    return per_cent(100.0 * share, ".0f")
