"""The driver's launch rate: learned where slots were free, and only there."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from kongming.spark.application import TASK, Application
from kongming.spark.estimation import Estimator, Size
from tests.spark.programs import Part, Program, Stage, run


def _threads(count: int) -> Program:
    """Threads that run three jobs each: there are always more tasks than slots."""
    random = np.random.default_rng(3)
    parts = []
    for k in range(3 * count):
        lengths = tuple(random.lognormal(0.0, 0.3, 16).round(3).tolist())
        after = (k - count,) if k >= count else ()
        parts.append(Part((Stage(lengths),), gap=0.05, after=after))
    return Program(tuple(parts))


@pytest.mark.parametrize("mode", ["FIFO", "FAIR"])
def test_tasks_that_wait_for_a_busy_slot_do_not_wait_for_the_driver(mode: str) -> None:
    application = run(replace(_threads(8), settings={"spark.scheduler.mode": mode}), 2, 2)
    estimator = Estimator(application, without=["warm-up", "first-tasks"])
    for executors in (1, 2, 4):
        estimate = estimator.estimate(Size(executors))
        measured = run(_threads(8), executors, 2).ended_s
        assert estimate.corrections["launch-rate"] == 0.0
        assert estimate.median_s == pytest.approx(measured, rel=0.04)


def _late(executors: int, every_s: float) -> Application:
    """A stage of tasks of two seconds; each executor of two slots comes some seconds later."""
    application = run(Program((Part((Stage((2.0,) * 200),), gap=0.0),), end=0.0), executors, 2)
    free = [(every_s * number, number) for number in range(executors) for _ in range(2)]
    tasks = np.zeros(200, TASK)
    for place, task in enumerate(tasks):
        launch, number = min(free)
        free.remove((launch, number))
        free.append((launch + 2.0, number))
        task["launch_s"], task["finish_s"] = launch, launch + 2.0
        task["executor"], task["partition"] = number, place
    ended = float(tasks["finish_s"].max())
    stage = replace(application.stages[0], tasks=tasks, completed_s=ended)
    return replace(
        application,
        executors=tuple(
            replace(each, added_s=every_s * number)
            for number, each in enumerate(application.executors)
        ),
        stages=(stage,),
        jobs=(replace(application.jobs[0], completed_s=ended),),
        ended_s=ended,
        last_s=ended,
    )


def test_tasks_that_wait_for_an_executor_do_not_wait_for_the_driver() -> None:
    application = _late(10, 3.0)
    estimator = Estimator(application)
    assert estimator.estimate(Size(10)).median_s == pytest.approx(application.ended_s, rel=0.02)
    for executors in (5, 10, 20, 40):
        assert estimator.estimate(Size(executors)).corrections["launch-rate"] == 0.0


def test_a_slow_driver_changes_nothing_up_to_the_recorded_size() -> None:
    """Each task is launched 20 ms after the one before, which eight slots hardly show."""
    application = run(Program((Part((Stage((0.4,) * 200),)),)), 8)
    tasks = application.stages[0].tasks.copy()
    tasks["launch_s"] += np.arange(len(tasks)) % 8 * 0.02
    tasks["finish_s"] += np.arange(len(tasks)) % 8 * 0.02
    stage = replace(application.stages[0], tasks=tasks)
    estimator = Estimator(replace(application, stages=(stage,)))
    for executors in (4, 8):
        assert estimator.estimate(Size(executors)).corrections["launch-rate"] == 0.0
    assert estimator.replayed_s() == pytest.approx(estimator.estimate(Size(8)).median_s)
    # 200 launches take 4 s, however many slots there are.
    assert estimator.estimate(Size(64)).median_s > 4.0
    assert estimator.estimate(Size(64)).corrections["launch-rate"] > 0.0


def test_slots_that_only_the_log_has_tell_nothing_of_the_driver() -> None:
    """Executors of one slot that have two cores in the log: each launch follows a task's end."""
    random = np.random.default_rng(2)
    lengths = tuple(random.uniform(0.5, 1.5, 80).round(3).tolist())
    application = run(Program((Part((Stage(lengths),)),)), 4)
    executors = tuple(replace(each, cores=2) for each in application.executors)
    estimator = Estimator(replace(application, executors=executors))
    for count in (4, 16):
        assert estimator.estimate(Size(count)).corrections["launch-rate"] == 0.0
