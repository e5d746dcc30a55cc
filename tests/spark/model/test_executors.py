"""Executors as the log has them: of different cores, and with fewer cores than a task needs."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from kongming.records.errors import ExtrapolationError
from kongming.spark.application import Application, Executor
from kongming.spark.estimation import Estimator, Size, warnings_of
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
