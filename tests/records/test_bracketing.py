"""Solo runs bracket the others: drift divides out, noise is averaged."""

from __future__ import annotations

import math
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kongming.learning.bracketing import TRAINING_WIDTH_S, Bracket, bracket, slowdowns
from kongming.records.moments import unix
from kongming.records.run import Run
from tests import builders


def at(second: float) -> str:
    return datetime.fromtimestamp(second, UTC).isoformat()


def solo(second: float, metric: float | None) -> Run:
    return builders.run("a", metric, started_at=at(second))


def corun(second: float, metric: float) -> Run:
    return builders.run(
        "a", metric, kind="corun", neighbours=("b",), started_at=at(second), fingerprint=None
    )


def test_drift_divides_out() -> None:
    solos = bracket([solo(t, 2.0 * math.exp(t / 7200)) for t in range(0, 7200, 120)])
    assert solos is not None
    runs = [corun(t, 3.0 * math.exp(t / 7200)) for t in (1800, 3600, 5400)]
    assert slowdowns(runs, solos) == pytest.approx([1.5, 1.5, 1.5], rel=0.01)


def test_one_solo_run_serves_all_and_failed_ones_none() -> None:
    solos = bracket([solo(100, 4.0), solo(200, None)])
    assert solos is not None
    assert slowdowns([corun(90_000, 6.0)], solos) == pytest.approx([1.5])
    assert bracket([solo(100, None), corun(100, 2.0)]) is None


def test_a_training_run_far_from_all_solo_runs_is_over_several_of_them() -> None:
    """One beside it is its reference; where the next is ten minutes away, so are its neighbours."""
    times, logs = (0.0, 1200.0, 2400.0), (0.0, 1.0, 0.0)
    training = Bracket(times, logs, TRAINING_WIDTH_S)
    assert math.log(training.at(1230.0)) > 0.99
    assert 0.4 < math.log(training.at(600.0)) < 0.5
    assert 0.4 < math.log(training.at(1500.0)) < 0.5
    assert 0.85 < math.log(Bracket(times, logs).at(1500.0)) < 0.95


@given(
    st.lists(st.tuples(st.floats(0, 1e5), st.floats(0.5, 50.0)), min_size=1, max_size=8),
    st.floats(-1e6, 1e6),
)
def test_the_bracket_lies_between_the_solo_runs(
    pairs: list[tuple[float, float]], moment: float
) -> None:
    solos = bracket([solo(t, cost) for t, cost in pairs])
    assert solos is not None
    costs = [cost for _, cost in pairs]
    assert min(costs) * 0.999 <= solos.at(moment) <= max(costs) * 1.001


def test_times_are_utc() -> None:
    assert unix("1970-01-01T00:01:00Z") == 60.0
