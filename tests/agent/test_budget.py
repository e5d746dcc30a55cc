from __future__ import annotations

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kongming_agent.probing.budget import Bucket, Recent


@given(
    st.lists(st.tuples(st.floats(0.0, 600.0), st.floats(0.01, 5.0)), max_size=200),
    st.floats(1.0, 100.0),
)
def test_no_window_sees_more_than_the_allowance_and_one_purchase(
    steps: list[tuple[float, float]], most: float
) -> None:
    bucket = Bucket(most, 3600.0, 0.0)
    now, bought = 0.0, []
    for wait, amount in steps:
        now += wait
        if bucket.ready_at(amount, now) <= now:
            bucket.spend(amount, now)
            bought.append((now, amount))
    for start, _ in bought:
        window = [amount for at, amount in bought if start <= at < start + 3600.0]
        assert math.fsum(window) <= most * (1 + 1e-9) + max(window)


def test_what_was_overdrawn_is_paid_back_first() -> None:
    bucket = Bucket(36.0, 3600.0, 0.0)
    bucket.spend(60.0, 0.0)
    at = bucket.ready_at(1.0, 0.0)
    assert at > 3600.0
    assert bucket.ready_at(1.0, at) <= at + 1e-6


def test_more_than_it_holds_is_lent_when_it_is_full() -> None:
    bucket = Bucket(36.0, 3600.0, 0.0)
    assert bucket.ready_at(100.0, 0.0) == 0.0
    bucket.spend(1.0, 0.0)
    assert bucket.ready_at(100.0, 0.0) > 0.0


def test_an_allowance_of_nothing_buys_nothing() -> None:
    assert Bucket(0.0, 3600.0, 0.0).ready_at(1.0, 0.0) == math.inf
    assert Bucket(0.0, 3600.0, 0.0).ready_at(0.0, 5.0) == 5.0


def test_a_clock_that_goes_back_gives_nothing() -> None:
    bucket = Bucket(36.0, 3600.0, 1000.0)
    bucket.spend(6.0, 1000.0)
    left = bucket.left(1000.0)
    assert bucket.left(500.0) == left
    bucket.spend(0.0, 500.0)
    assert bucket.left(1000.0) == pytest.approx(left)


def test_a_restart_restores_what_was_left_and_what_came_in_since() -> None:
    bucket = Bucket(36.0, 3600.0, 0.0)
    bucket.restore(-10.0, 60.0)
    assert bucket.left(0.0) == pytest.approx(-10.0 + 60.0 * bucket.rate)
    bucket.restore(-10.0, -5.0)
    assert bucket.left(0.0) == -10.0


def test_a_recent_sum_forgets_what_is_older_than_its_window() -> None:
    recent = Recent(3600.0, 0.0)
    rng = random.Random(1)
    for minute in range(120):
        recent.add(rng.uniform(0.5, 1.5), 60.0 * minute)
    assert recent.total(7200.0) == pytest.approx(60.0, rel=0.15)
    assert recent.rate(7200.0) == pytest.approx(1 / 60, rel=0.15)
    assert recent.total(7200.0 + 7200.0) == 0.0
