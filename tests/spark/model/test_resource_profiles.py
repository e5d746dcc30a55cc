"""Stages of another resource profile run on executors of their own, at every size."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from kongming.records.errors import CannotAnswerError
from kongming.spark.application import Application, Executor, ResourceProfile
from kongming.spark.estimation import Estimator, Size, warnings_of
from tests.spark.programs import Part, Program, Stage, run

TASKS = Stage((2.0,) * 40)


def _profiled(executors: int) -> Application:
    """Three jobs on executors of two slots; the second on four of a profile of two CPUs a task."""
    second = run(Program((Part((TASKS,), gap=0.0),), end=0.0), 4, 2)
    assert second.ended_s is not None
    parts = Part((TASKS,)), Part((TASKS,), gap=2.0 + second.ended_s, after=(0,))
    others = run(Program(parts), executors, 2)
    begin = (others.jobs[0].completed_s or 0.0) + 1.0
    end = begin + second.ended_s
    tasks = second.stages[0].tasks.copy()
    tasks["launch_s"] += begin
    tasks["finish_s"] += begin
    tasks["executor"] += executors
    stage = replace(
        second.stages[0],
        stage=9,
        submitted_s=begin,
        completed_s=end,
        tasks=tasks,
        resource_profile=1,
    )
    job = replace(second.jobs[0], id=9, stages=(9,), submitted_s=begin, completed_s=end)
    more = [Executor(f"p{k}", f"p{k}", 4, begin, resource_profile=1) for k in range(4)]
    return replace(
        others,
        executors=(*others.executors, *more),
        jobs=(*others.jobs, job),
        stages=(*others.stages, stage),
        resource_profiles=(ResourceProfile(1, 4, 2.0),),
    )


def test_executors_of_other_profiles_are_not_those_that_are_asked_for() -> None:
    application = _profiled(2)
    estimator = Estimator(application)
    assert (estimator.workload.cluster.executors, estimator.workload.cluster.cores) == (2, 2)
    assert estimator.replayed_s() == pytest.approx(application.ended_s, rel=0.01)
    for executors in (1, 2, 5):
        estimate = estimator.estimate(Size(executors))
        assert estimate.median_s == pytest.approx(_profiled(executors).ended_s, rel=0.02)
        assert estimate.machine_s == pytest.approx(executors * estimate.median_s, rel=0.01)
        assert 0.0 < estimate.utilisation <= 1.0
        named = "4 executors of other resource profiles"
        assert any(named in warning for warning in warnings_of(estimator, [estimate]))


def test_stages_of_one_profile_share_its_executors() -> None:
    """The second job's tasks as two jobs at once: each has half of the eight slots."""
    application = _profiled(2)
    (job,) = (each for each in application.jobs if each.id == 9)
    (stage,) = (each for each in application.stages if each.stage == 9)
    halves = [
        replace(stage, stage=9 + half, tasks=stage.tasks[half::2], task_count=20) for half in (0, 1)
    ]
    estimator = Estimator(
        replace(
            application,
            jobs=(*application.jobs, replace(job, id=10, stages=(10,))),
            stages=(*(each for each in application.stages if each.stage != 9), *halves),
        )
    )
    assert estimator.replayed_s() == pytest.approx(application.ended_s, rel=0.02)


def test_tasks_of_two_cpus_share_slots_with_those_of_one() -> None:
    """Jobs at once on two executors of four cores that register after 3 s: 16 tasks of a CPU, and
    8 of a profile without executors of its own, of two CPUs each; of a second all of them."""
    plain = run(Program((Part((Stage((1.0,) * 16),)),)), 2, 4)
    late, (first,) = 3.0, plain.stages
    ones, twos = first.tasks.copy(), first.tasks[:8].copy()
    for tasks, begins in ((ones, (0.0,) * 8 + (1.0,) * 8), (twos, (2.0,) * 4 + (3.0,) * 4)):
        tasks["launch_s"] = late + np.array(begins)
        tasks["finish_s"] = tasks["launch_s"] + 1.0
    both = (
        replace(first, tasks=ones, submitted_s=1.0, completed_s=late + 2.0),
        replace(
            first,
            stage=9,
            task_count=8,
            tasks=twos,
            submitted_s=1.5,
            completed_s=late + 4.0,
            resource_profile=1,
        ),
    )
    jobs = (
        replace(plain.jobs[0], submitted_s=1.0, completed_s=late + 2.0),
        replace(plain.jobs[0], id=1, stages=(9,), submitted_s=1.5, completed_s=late + 4.0),
    )
    estimator = Estimator(
        replace(
            plain,
            executors=tuple(replace(each, added_s=late) for each in plain.executors),
            jobs=jobs,
            stages=both,
            ended_s=late + 4.0,
            last_s=late + 4.0,
            resource_profiles=(ResourceProfile(1, None, 2.0),),
        ),
        without=("first-tasks",),
    )
    assert estimator.replayed_s() == pytest.approx(late + 4.0)
    for executors, seconds in ((1, 8.0), (4, 2.0)):
        assert estimator.estimate(Size(executors)).median_s == pytest.approx(
            late + seconds, rel=0.02
        )


def test_only_executors_of_other_profiles_have_no_answer() -> None:
    application = _profiled(2)
    executors = tuple(replace(each, resource_profile=1) for each in application.executors)
    with pytest.raises(CannotAnswerError, match="other resource profiles"):
        Estimator(replace(application, executors=executors))


def _of_two_cpus(executors: int, stages: set[int]) -> Application:
    """Executors of four cores that run two tasks at once in ``stages``: of the default profile, and
    the tasks of a profile of two CPUs."""
    random = np.random.default_rng(3)
    parts = [
        Part((Stage(tuple(random.lognormal(0.7, 0.15, 40).round(3).tolist())),), after=(k - 1,))
        for k in range(1, 4)
    ]
    application = run(Program((Part((TASKS,)), *parts)), executors, 2)
    return replace(
        application,
        executors=tuple(replace(each, cores=4) for each in application.executors),
        stages=tuple(
            replace(each, resource_profile=1) if each.stage in stages else each
            for each in application.stages
        ),
        resource_profiles=(ResourceProfile(0, 4, 1.0), ResourceProfile(1, None, 2.0)),
    )


def test_tasks_of_a_profile_without_executors_run_fewer_at_once() -> None:
    application = _of_two_cpus(2, {0, 1, 2, 3})
    estimator = Estimator(application)
    assert [stage.turnover_s for stage in estimator.workload.stages] == pytest.approx([0.0] * 4)
    assert estimator.replayed_s() == pytest.approx(application.ended_s, rel=0.01)
    for executors in (1, 4):
        measured = _of_two_cpus(executors, {0, 1, 2, 3}).ended_s
        assert estimator.estimate(Size(executors)).median_s == pytest.approx(measured, rel=0.03)


def test_stages_of_both_profiles_on_the_same_executors() -> None:
    """The first two jobs have four tasks at once on an executor, the others two."""
    halved = _of_two_cpus(2, {2, 3})
    full = _of_two_cpus(4, set())
    # Their stages as on twice the executors, of which each has the tasks of two.
    stages = list(halved.stages)
    begin = stages[2].submitted_s or 0.0
    shift = begin - (full.stages[2].submitted_s or 0.0)
    for place in (0, 1):
        own = full.stages[place]
        tasks = own.tasks.copy()
        tasks["executor"] //= 2
        for name in ("launch_s", "finish_s"):
            tasks[name] += shift
        submitted, completed = ((own.submitted_s or 0.0), (own.completed_s or 0.0))
        stages[place] = replace(
            own, tasks=tasks, submitted_s=submitted + shift, completed_s=completed + shift
        )
    jobs = list(halved.jobs)
    for place in (0, 1):
        jobs[place] = replace(
            jobs[place],
            submitted_s=full.jobs[place].submitted_s + shift,
            completed_s=(full.jobs[place].completed_s or 0.0) + shift,
        )
    estimator = Estimator(replace(halved, stages=tuple(stages), jobs=tuple(jobs)))
    assert [stage.turnover_s for stage in estimator.workload.stages] == pytest.approx([0.0] * 4)
    assert estimator.replayed_s() == pytest.approx(halved.ended_s, rel=0.01)
