"""Executors as the log has them: of different cores, and with fewer cores than a task needs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from kongming.records.errors import CannotAnswerError, ExtrapolationError
from kongming.spark.application import Application, Executor
from kongming.spark.estimation import Estimator, Size, warnings_of
from kongming.spark.inspection import inspect
from tests.conftest import Kongming
from tests.spark.event_logs import write
from tests.spark.programs import Part, Program, Stage, run


def _program() -> Program:
    random = np.random.default_rng(7)
    stages = [
        Stage(tuple(random.lognormal(0.0, 0.2, count).round(3).tolist()), parents)
        for count, parents in ((200, ()), (80, (0,)))
    ]
    return Program(
        tuple(Part(tuple(stages), after=(k - 1,) if k else ()) for k in range(3)),
    )


def _mixed(*cores: int) -> Application:
    """A run on executors of these cores: each slot ran what one executor of one core would."""
    application = run(_program(), sum(cores))
    owner = np.repeat(np.arange(len(cores)), cores)
    stages = []
    for stage in application.stages:
        tasks = stage.tasks.copy()
        tasks["executor"] = owner[tasks["executor"]]
        stages.append(replace(stage, tasks=tasks))
    executors = tuple(Executor(str(k), f"host{k}", own, 0.0) for k, own in enumerate(cores))
    return replace(application, stages=tuple(stages), executors=executors)


@pytest.mark.parametrize("cores", [(8, 8, 4, 4, 4), (1, 2, 8, 16), (16, 1, 1)])
def test_executors_of_different_cores_replay_with_their_own_slots(cores: tuple[int, ...]) -> None:
    application = _mixed(*cores)
    estimator = Estimator(application)
    assert estimator.replayed_s() == pytest.approx(application.ended_s, rel=0.01)
    assert estimator.workload.cluster.slots == sum(cores)
    # The slots have no gaps, and none is taken before it is free.
    assert [stage.turnover_s for stage in estimator.workload.stages] == pytest.approx([0.0] * 6)


def test_executors_of_different_cores_are_named_and_refused_under_strict() -> None:
    application = _mixed(8, 8, 4, 4, 4)
    estimator = Estimator(application)
    for executors in (2, 5, 10):
        estimate = estimator.estimate(Size(executors))
        assert estimate.cores == 4
        measured = run(_program(), 4 * executors).ended_s
        assert estimate.median_s == pytest.approx(measured, rel=0.02)
        sentence = "different cores (2 of 8, 3 of 4); executors of 4 cores are estimated"
        assert any(sentence in reason for reason in estimate.reasons)
        assert any(sentence in warning for warning in warnings_of(estimator, [estimate]))
    assert "executors of 8 cores" in estimator.estimate(Size(2, 8)).reasons[0]
    with pytest.raises(ExtrapolationError, match="different cores"):
        Estimator(application, strict=True).estimate(Size(5))


@pytest.mark.parametrize(("share", "refused"), [(0.01, False), (0.3, True)])
def test_an_executor_of_other_cores_for_a_short_time_is_a_warning(
    share: float, refused: bool
) -> None:
    """It comes late and runs nothing before it goes."""
    application = run(_program(), 2, 4)
    assert application.ended_s is not None
    end = application.ended_s
    stray = Executor("stray", "host9", 8, 0.5 * end, removed_s=(0.5 + share) * end)
    estimator = Estimator(replace(application, executors=(*application.executors, stray)))
    estimate = estimator.estimate(Size(4))
    assert any("different cores" in reason for reason in estimate.reasons) is refused
    assert any("different cores" in warning for warning in warnings_of(estimator, [estimate]))
    if not refused:
        assert estimate.reasons == ()


def _needing(cpus: str, cores: int) -> Application:
    """Executors that run two tasks at once, and the cores that the log has for them."""
    application = run(_program(), 2, 2)
    executors = tuple(replace(each, cores=cores) for each in application.executors)
    settings = {**application.settings, "spark.task.cpus": cpus}
    return replace(application, executors=executors, settings=settings)


@pytest.mark.parametrize(("cpus", "cores"), [("2", 2), ("2", 1), ("8", 2)])
def test_the_tasks_show_the_slots_that_cores_and_task_cpus_do_not(cpus: str, cores: int) -> None:
    application = _needing(cpus, cores)
    estimator = Estimator(application)
    assert estimator.workload.cluster.slots == 4
    estimate = estimator.estimate(Size(4))
    assert estimate.cores == 2 * int(cpus)
    assert estimate.median_s == pytest.approx(run(_program(), 4, 2).ended_s, rel=0.02)
    assert any("spark.task.cpus" in warning for warning in warnings_of(estimator, [estimate]))
    with pytest.raises(CannotAnswerError, match=r"spark\.task\.cpus"):
        estimator.estimate(Size(4, 1))


def test_an_executor_too_small_for_a_task_is_left_out() -> None:
    application = _needing("2", 4)
    small = Executor("small", "host9", 1, 0.0)
    estimator = Estimator(replace(application, executors=(*application.executors, small)))
    assert (estimator.workload.cluster.executors, estimator.workload.cluster.slots) == (2, 4)
    estimate = estimator.estimate(Size(2))
    assert any("1 executor with fewer cores" in each for each in warnings_of(estimator, [estimate]))


@pytest.mark.parametrize("cpus", ["nan", "inf", "1e400", "two"])
@pytest.mark.parametrize("command", ["estimate", "inspect"])
def test_task_cpus_that_are_no_number_are_named(
    command: str, cpus: str, kongming: Kongming, tmp_path: Path
) -> None:
    refused = kongming("spark", command, write(_needing(cpus, 2), tmp_path / "log"))
    assert refused.returncode == 3
    assert f"spark.task.cpus is '{cpus}'" in " ".join(refused.stderr.split())
    assert "Traceback" not in refused.stderr


def test_waiting_for_executors_in_mid_run_is_not_the_drivers() -> None:
    """Both executors are preempted between two jobs, and others come half a minute later: who
    keeps them does not wait."""
    program = Program((Part((Stage((1.0,) * 8),)), Part((Stage((1.0,) * 8),), after=(0,))))
    plain = run(program, 2)
    first, second = plain.stages
    assert first.completed_s is not None
    assert second.submitted_s is not None
    tasks = second.tasks.copy()
    tasks["launch_s"] += 30.0
    tasks["finish_s"] += 30.0
    tasks["executor"] += 2
    assert second.completed_s is not None
    assert plain.jobs[1].completed_s is not None
    assert plain.ended_s is not None
    gone = [replace(each, removed_s=first.completed_s + 0.1) for each in plain.executors]
    come = [
        replace(each, id=str(2 + place), added_s=second.submitted_s + 30.0)
        for place, each in enumerate(plain.executors)
    ]
    preempted = replace(
        plain,
        executors=(*gone, *come),
        jobs=(plain.jobs[0], replace(plain.jobs[1], completed_s=plain.jobs[1].completed_s + 30.0)),
        stages=(
            first,
            replace(second, tasks=tasks, completed_s=second.completed_s + 30.0),
        ),
        ended_s=plain.ended_s + 30.0,
        last_s=plain.last_s + 30.0,
    )
    sizes = [Size(1), Size(2), Size(4)]
    expected = [each.median_s for each in Estimator(plain).estimates(sizes)]
    (named,) = (each for each in inspect(preempted).limits if each.kind == "no-executors")
    assert named.share == pytest.approx(30.0 / (plain.last_s + 30.0), rel=0.05)
    estimator = Estimator(preempted)
    assert estimator.workload.measured_s == pytest.approx(plain.last_s + 30.0)
    estimated = [each.median_s for each in estimator.estimates(sizes)]
    assert estimated == pytest.approx(expected, rel=0.1)


def test_a_retry_has_as_many_tasks_as_were_lost_at_any_size() -> None:
    """Though they are as many as the cores, as those of a first attempt by default parallelism."""
    application = replace(run(Program((Part((Stage((6.0, 6.0)),)),)), 2), settings={})
    (stage,) = application.stages
    retried = replace(application, stages=(replace(stage, attempt=1),))
    first, retry = (
        Estimator(each).estimates([Size(2), Size(4)]) for each in (application, retried)
    )
    assert first[1].median_s < 0.8 * first[0].median_s
    assert retry[1].median_s == pytest.approx(retry[0].median_s)
