"""Speculative copies are launched as Spark does: once most of their stage has ended."""

from __future__ import annotations

import heapq
from dataclasses import replace

import numpy as np
import pytest

from kongming.spark.application import KILLED, SUCCEEDED, TASK, Application
from kongming.spark.estimation import Estimator, Size
from kongming.spark.model.critical_path import critical_path_s
from kongming.spark.model.replay import replay
from tests.spark.programs import Part, Program, Stage, run

SLOW, AGAIN = 60.0, 10.0
"""Seconds of a task that is copied, and of its copy."""

TaskRow = tuple[float, float, int, int, int, bool]
"""Launch, finish, executor, partition, status, and whether it is a copy."""


def _stage(lengths: list[float], executors: int, begin: float, wins: bool) -> list[TaskRow]:
    """Two slots an executor, three quarters of the stage, one and a half times the median."""
    slots = [(begin, slot % executors) for slot in range(2 * executors)]
    rows: list[TaskRow] = []
    for partition, length in enumerate(lengths):
        free, executor = heapq.heappop(slots)
        rows.append((free, free + length, executor, partition, SUCCEEDED, False))
        heapq.heappush(slots, (free + length, executor))
    others = [row for row in rows if row[1] - row[0] < SLOW]
    quorum = sorted(row[1] for row in others)[int(0.75 * len(lengths)) - 1]
    median = float(np.median([row[1] - row[0] for row in others]))
    for place, row in enumerate(rows):
        if row[1] - row[0] < SLOW:
            continue
        free, executor = heapq.heappop(slots)
        start = max(free, quorum, row[0] + 1.5 * median)
        end = start + AGAIN if wins else row[1]
        heapq.heappush(slots, (end, executor))
        rows.append((start, end, executor, row[3], SUCCEEDED if wins else KILLED, True))
        if wins:
            rows[place] = (row[0], end, row[2], row[3], KILLED, False)
    return sorted(rows, key=lambda row: (row[0], row[5], row[3]))


def _speculated(
    executors: int, count: int, *, wins: bool = True, mode: str = "FIFO"
) -> Application:
    """Three jobs of ``count`` tasks, of which the second is ``SLOW`` and copied."""
    random = np.random.default_rng(2)
    program = Program(
        tuple(Part((Stage((1.0,) * count),), after=(k - 1,) if k else ()) for k in range(3)),
        settings={"spark.speculation.quantile": "0.75", "spark.speculation.multiplier": "1.5"},
    )
    application = run(program, executors, 2)
    jobs, stages, now = [], [], 0.0
    for job, stage in zip(application.jobs, application.stages, strict=True):
        lengths = random.uniform(9.0, 11.0, count).round(3).tolist()
        lengths[1] = SLOW
        begin = now + 1.0
        rows = _stage(lengths, executors, begin, wins)
        tasks = np.zeros(len(rows), TASK)
        for name, column in zip(
            ("launch_s", "finish_s", "executor", "partition", "status", "speculative"),
            zip(*rows, strict=True),
            strict=True,
        ):
            tasks[name] = column
        now = float(tasks["finish_s"].max())
        spans = {"submitted_s": begin, "completed_s": now}
        stages.append(replace(stage, tasks=tasks, **spans))
        jobs.append(replace(job, **spans))
    return replace(
        application,
        jobs=tuple(jobs),
        stages=tuple(stages),
        ended_s=now + 0.5,
        last_s=now + 0.5,
        settings={**application.settings, "spark.scheduler.mode": mode},
    )


@pytest.mark.parametrize("mode", ["FIFO", "FAIR"])
@pytest.mark.parametrize("count", [8, 16, 40])
def test_copies_come_as_late_on_other_sizes(count: int, mode: str) -> None:
    recorded = _speculated(4, count, mode=mode)
    estimator = Estimator(recorded)
    assert estimator.replayed_s() == pytest.approx(recorded.ended_s, rel=0.01)
    for executors in (4, 8, 16):
        measured = _speculated(executors, count, mode=mode).ended_s
        assert estimator.estimate(Size(executors)).median_s == pytest.approx(measured, rel=0.03)
    endless = _speculated(count, count).ended_s
    assert critical_path_s(estimator.workload) == pytest.approx(endless, rel=0.03)


def test_fewer_executors_than_recorded_copy_later() -> None:
    estimator = Estimator(_speculated(8, 40))
    for executors in (4, 8):
        measured = _speculated(executors, 40).ended_s
        assert estimator.estimate(Size(executors)).median_s == pytest.approx(measured, rel=0.03)


def test_no_stage_waits_for_a_copy_that_was_killed() -> None:
    recorded = _speculated(4, 16, wins=False)
    estimator = Estimator(recorded)
    for executors in (2, 4, 8):
        measured = _speculated(executors, 16, wins=False).ended_s
        assert estimator.estimate(Size(executors)).median_s == pytest.approx(measured, rel=0.03)
    assert all(stage.turnover_s == pytest.approx(0.0) for stage in estimator.workload.stages)


def test_copies_of_a_stage_with_a_profile_of_its_own() -> None:
    """Its executors stay as they were recorded, and so does its time."""
    recorded = _speculated(4, 16)
    own = tuple(replace(each, id=f"p{each.id}", resource_profile=1) for each in recorded.executors)
    stages = []
    for stage in recorded.stages:
        tasks = stage.tasks.copy()
        tasks["executor"] += 4
        stages.append(replace(stage, tasks=tasks, resource_profile=1))
    estimator = Estimator(
        replace(recorded, executors=(*recorded.executors, *own), stages=tuple(stages))
    )
    for executors in (1, 4, 8):
        estimate = estimator.estimate(Size(executors))
        assert estimate.median_s == pytest.approx(recorded.ended_s, rel=0.01)


def test_a_copy_that_other_rules_held_back_comes_no_sooner() -> None:
    """It waited twenty seconds longer than by quantile and median, next to free slots."""
    recorded = _speculated(8, 8)
    stages = []
    for stage in recorded.stages:
        tasks = stage.tasks.copy()
        copies = tasks["speculative"]
        tasks["launch_s"][copies] += 20.0
        tasks["finish_s"][copies] += 20.0
        tasks["finish_s"][tasks["status"] == KILLED] += 20.0
        completed = (stage.completed_s or 0.0) + 20.0
        stages.append(replace(stage, tasks=tasks, completed_s=completed))
    first = replace(recorded.jobs[0], completed_s=stages[0].completed_s)
    ended = stages[0].completed_s
    application = replace(
        recorded, stages=(stages[0],), jobs=(first,), ended_s=ended, last_s=ended or 0.0
    )
    estimator = Estimator(application)
    for executors in (8, 16, 32):
        replayed = replay(estimator.workload, estimator.cluster(Size(executors)))
        assert replayed.end_s == pytest.approx(ended, rel=0.01)
