"""First tasks and warm-up together: how long cold executors make an application at most."""

from __future__ import annotations

import numpy as np
import pytest

from kongming.records.errors import ExtrapolationError
from kongming.spark.application import Application, Rdd
from kongming.spark.estimation import Estimator, Size
from tests.spark.programs import Part, Program, Stage, run


def _compiling(executors: int) -> Application:
    """Stages of sixteen tasks of one kind. A task takes a second by a warm executor; what an
    executor takes on top falls with the tasks that it ran, and is six seconds at its first."""
    random = np.random.default_rng(11)
    worked = np.zeros(executors)
    parts = []
    for k in range(30):
        lengths = []
        for task in range(16):
            slot = task % executors
            length = (1.0 + 6.0 / (1.0 + worked[slot])) * random.uniform(0.95, 1.05)
            worked[slot] += 1.0
            lengths.append(float(length))
        rdds = (Rdd(k, "scan", 16),)
        parts.append(Part((Stage(tuple(lengths), rdds=rdds),), after=(k - 1,) if k else ()))
    return run(Program(tuple(parts)), executors)


def test_no_task_takes_longer_than_the_first_ones_of_its_kind_did() -> None:
    application = _compiling(4)
    estimator = Estimator(application)
    slowest = max(float(stage.lengths.max()) for stage in estimator.workload.stages)
    for estimate in (estimator.estimate(Size(executors)) for executors in (64, 4096)):
        assert estimate.corrections["first-tasks"] > 0.0
        assert estimate.corrections["warm-up"] > 0.0
        # Thirty stages after each other, each of one wave of tasks, and the gaps.
        assert estimate.median_s < 30 * 1.1 * slowest + 31.0


@pytest.mark.parametrize("executors", [2, 8, 16])
def test_sizes_near_the_recorded_one_are_estimated(executors: int) -> None:
    estimate = Estimator(_compiling(4)).estimate(Size(executors))
    assert estimate.median_s == pytest.approx(_compiling(executors).ended_s, rel=0.2)


def test_an_answer_that_is_mostly_corrections_is_flagged_and_refused_under_strict() -> None:
    application = _compiling(4)
    far, near = (Estimator(application).estimate(Size(count)) for count in (4096, 4))
    assert any("corrections make it" in reason for reason in far.reasons)
    assert near.reasons == ()
    with pytest.raises(ExtrapolationError, match="corrections make it"):
        Estimator(application, strict=True).estimate(Size(4096))
