"""What finished runs say of predictions: scores, coverage, and what validation promised."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kongming_server.quality.backtest import error, promised, realised, score

from kongming.learning import model_file as persist
from kongming.learning.training import train_application
from kongming.store.service_entries import StoredRealised
from tests.server.profiles.profiled import campaign


def finished(measured: float = 3.0, **changes: Any) -> StoredRealised:
    values: dict[str, Any] = {
        "run_id": "run-1",
        "assignment_id": "job-1",
        "app": "prog",
        "placement": "cross-core",
        "node_id": "node-1",
        "model_version": 1,
        "ended_at": 1000.0,
        "predicted": 3.0,
        "lower": 2.5,
        "upper": 4.0,
        "level": 0.9,
        "measured": measured,
    }
    return StoredRealised(**(values | changes))


def test_no_runs_say_nothing() -> None:
    assert realised([]) is None


def test_error_coverage_and_level_are_over_all_runs() -> None:
    summary = realised([finished(3.0), finished(3.3), finished(6.0)], ["It drifts."])
    assert summary is not None
    assert summary.runs == 3
    assert summary.median_error_pct == pytest.approx(100.0 * 0.3 / 3.3)
    assert summary.coverage == pytest.approx(2.0 / 3.0)
    assert summary.level == 0.9
    assert summary.drifted
    assert summary.reason == "It drifts."


@given(st.floats(0.01, 1000.0))
def test_an_interval_holds_a_run_just_where_the_score_is_within_one(measured: float) -> None:
    run = finished(measured)
    assert (abs(score(run)) <= 1.0 + 1e-9) == run.covered or math.isclose(abs(score(run)), 1.0)


@pytest.mark.parametrize("measured", [5e-324, 1e-100, 1e100, 1.7e308])
@pytest.mark.parametrize("predicted", [1e-100, 3.0, 1e100])
def test_whatever_was_reported_has_an_error_and_a_score(measured: float, predicted: float) -> None:
    ends = {"lower": 0.9 * predicted, "upper": 1.1 * predicted}
    run = finished(measured, predicted=predicted, **ends)
    assert math.isfinite(error(run))
    assert math.isfinite(score(run))
    assert (error(run) > 0.0) == (measured > predicted)


def test_slower_is_above_zero_whichever_way_the_metric_counts() -> None:
    assert score(finished(4.0)) == pytest.approx(1.0)
    assert score(finished(2.5)) == pytest.approx(-1.0)
    fewer_per_second = finished(2.5)
    assert error(fewer_per_second, "higher") > 0.0
    assert score(fewer_per_second, "higher") == pytest.approx(1.0)


def test_what_is_worse_than_at_least_is_no_error_and_what_is_better_is() -> None:
    slow = finished(14.0, predicted=5.0, lower=4.0, upper=math.inf)
    assert (slow.error_pct, slow.covered, error(slow), score(slow)) == (0.0, True, 0.0, 0.0)
    few = finished(14.0, predicted=50.0, lower=0.0, upper=60.0)
    assert (few.error_pct, few.covered) == (0.0, True)
    assert (error(few, "higher"), score(few, "higher")) == (0.0, 0.0)
    fast = finished(2.0, predicted=5.0, lower=4.0, upper=math.inf)
    assert (fast.error_pct, fast.covered) == (pytest.approx(150.0), False)
    assert score(fast) == pytest.approx(math.log(2.0 / 5.0) / math.log(5.0 / 4.0))
    many = finished(90.0, predicted=50.0, lower=0.0, upper=60.0)
    assert score(many, "higher") < -1.0
    summary = realised([slow, fast, slow])
    assert summary is not None
    assert summary.median_error_pct == 0.0
    assert summary.coverage == pytest.approx(2.0 / 3.0)


def test_an_interval_without_width_is_missed_by_far() -> None:
    assert score(finished(3.1, lower=3.0, upper=3.0)) > 1000.0
    assert score(finished(3.0, lower=3.0, upper=3.0)) == 0.0


def test_validation_keeps_what_it_promises() -> None:
    document = train_application(campaign(), models=("LM", "CART"))
    scores = np.array(promised(persist.read(document)))
    assert len(scores) >= 20
    assert np.isfinite(scores).all()
    # Its intervals hold at least as many of its own residuals as they say.
    assert np.mean(np.abs(scores) <= 1.0 + 1e-9) >= 0.85
