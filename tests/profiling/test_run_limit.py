"""When a run under load is ended though its program is not."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kongming.profiling.plans.run_limit import (
    LONGEST_SLOWDOWN,
    MOST_SLOWDOWN,
    PATIENCE,
    limit_s,
)

SECONDS = st.floats(0.01, 100.0)


@given(SECONDS, st.floats(0.0, 1e5))
def test_a_run_is_ended_within_the_usual_and_the_longest_time(
    alone: float, overtime_s: float
) -> None:
    limit = limit_s([alone], overtime_s)
    usual = max(MOST_SLOWDOWN * alone, alone + 1.0)
    assert usual <= limit <= max(usual, LONGEST_SLOWDOWN * alone)
    assert limit <= limit_s([alone], overtime_s / 2.0)


@given(SECONDS)
def test_a_program_that_never_ends_uses_its_patience_and_no_more(alone: float) -> None:
    usual = limit_s([alone], float("inf"))
    beyond = 0.0
    for _ in range(1000):
        beyond += limit_s([alone], beyond) - usual
    assert beyond <= PATIENCE * alone * (1.0 + 1e-9)
    # A tenth of a millisecond of it may be left to rounding.
    assert beyond >= min(PATIENCE * alone, 1000 * (LONGEST_SLOWDOWN * alone - usual)) - 1e-4


def test_the_first_runs_end_by_themselves_where_a_program_is_slowed_ten_times() -> None:
    beyond, ended = 0.0, 0
    while limit_s([4.0], beyond) >= 40.0:
        beyond += 40.0 - MOST_SLOWDOWN * 4.0
        ended += 1
    assert ended == 12


@given(SECONDS, st.floats(0.0, 1e5), st.floats(-10.0, 1e5))
def test_a_run_ends_before_its_load_but_for_no_less_than_the_usual_time(
    alone: float, overtime_s: float, load_left_s: float
) -> None:
    usual = max(MOST_SLOWDOWN * alone, alone + 1.0)
    limit = limit_s([alone], overtime_s, load_left_s)
    assert usual <= limit <= max(usual, load_left_s)
    assert limit == limit_s([alone], overtime_s) or limit == max(usual, load_left_s)
