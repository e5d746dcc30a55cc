"""What a log does not explain of its own time is as uncertain at other sizes."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from kongming.records.errors import ExtrapolationError
from kongming.spark.application import Application, Executor
from kongming.spark.estimate_document import document
from kongming.spark.estimation import Estimator, Size, warnings_of
from tests.spark.programs import Part, Program, Stage, run


def _idle(executors: int) -> Application:
    """Two executors did all the work; the others were there, and got no task."""
    application = run(Program((Part((Stage((2.0,) * 120),)),)), 2)
    others = tuple(Executor(f"idle{k}", f"idle{k}", 1, 0.0) for k in range(executors - 2))
    return replace(application, executors=(*application.executors, *others))


def test_a_log_that_does_not_explain_its_own_time_has_wide_intervals_and_a_reason() -> None:
    application = _idle(4)
    estimator = Estimator(application)
    estimates = [estimator.estimate(Size(executors)) for executors in (2, 4, 8)]
    same = estimates[1]
    # The replay uses all four executors.
    assert same.median_s < 0.6 * (application.ended_s or 0.0)
    assert same.lower_s < (application.ended_s or 0.0) < same.upper_s
    for estimate in estimates:
        assert estimate.deviation > math.log(1.9)
        assert any("recorded size is" in reason for reason in estimate.reasons)
    assert any("its own time" in warning for warning in warnings_of(estimator, estimates))
    error = document(estimator, estimates)["self_check"]["error_pct"]
    assert error == pytest.approx(100.0 * estimator.unexplained)
    with pytest.raises(ExtrapolationError, match="off"):
        Estimator(application, strict=True).estimate(Size(4))


def test_a_log_that_explains_its_time_has_no_such_reason() -> None:
    application = _idle(2)
    estimate = Estimator(application, strict=True).estimate(Size(4))
    assert estimate.reasons == ()
    assert estimate.deviation < 0.15
