"""Warnings are logged when a problem begins, again while it lasts, and when it is over."""

from __future__ import annotations

import logging

import pytest
from kongming_scheduling import log_throttle
from kongming_scheduling.log_throttle import LogThrottle

LOG = logging.getLogger("kongming_scheduling.test")


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [100.0]
    monkeypatch.setattr(log_throttle.time, "monotonic", lambda: now[0])
    return now


def test_a_problem_is_logged_once_until_it_is_over(
    clock: list[float], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    throttle = LogThrottle(LOG)
    throttle.clear("server", "never logged")
    for _ in range(3):
        throttle.warn("server", "It is away.")
    throttle.warn("pods", "No pods.")
    assert throttle.active
    throttle.clear("server", "It is back.")
    throttle.clear("pods", "Pods again.")
    assert not throttle.active
    throttle.warn("server", "It is away again.")
    assert caplog.messages == [
        *("It is away.", "No pods.", "It is back.", "Pods again."),
        "It is away again.",
    ]


@pytest.mark.parametrize(("repeat_after_s", "lines"), [(600.0, 2), (float("inf"), 1)])
def test_a_problem_that_lasts_is_logged_again(
    clock: list[float], caplog: pytest.LogCaptureFixture, repeat_after_s: float, lines: int
) -> None:
    throttle = LogThrottle(LOG, repeat_after_s)
    for moment in (100.0, 699.0, 700.0):
        clock[0] = moment
        throttle.warn("server", "It is away.")
    assert caplog.messages == ["It is away."] * lines


def test_problems_are_not_remembered_without_end(
    clock: list[float], caplog: pytest.LogCaptureFixture
) -> None:
    throttle = LogThrottle(LOG)
    for number in range(log_throttle.MOST_PROBLEMS + 1):
        throttle.warn(f"problem {number}", f"{number}")
    throttle.warn("problem 1", "remembered")
    throttle.warn("problem 0", "forgotten")
    assert caplog.messages[-2:] == [f"{log_throttle.MOST_PROBLEMS}", "forgotten"]


def test_a_minute_has_no_more_lines_than_it_may(
    clock: list[float], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    throttle = LogThrottle(LOG, level=logging.INFO, lines_a_minute=2)
    for pod in "abcd":
        throttle.warn(pod, lambda pod=pod: f"{pod} waits.")  # type: ignore[misc]
    clock[0] += 61.0
    # One that was left out is logged when it comes again.
    for pod in "dab":
        throttle.warn(pod, f"{pod} waits.")
    assert caplog.messages == ["a waits.", "b waits.", "d waits. (2 more were left out.)"]
