"""Runs under load that take many times longer than alone: which are ended, and what that costs."""

from __future__ import annotations

from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from kongming.profiling.plans.run_limit import LONGEST_SLOWDOWN, MOST_SLOWDOWN, PATIENCE
from kongming.profiling.write_limit import WriteLimit
from kongming.records.run import LoadLevel
from tests.profiling.scripted import campaign, plan_of

ALONE = 4.0


def test_a_run_that_fails_uses_no_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = plan_of(["solo", "stream.triad", "stream.add", "stream.copy", "stream.scale"])
    runs, limits = campaign(monkeypatch, plan, lambda number: None if number else ALONE)
    assert [run.ok for run in runs] == [True, False, False, False, False]
    assert limits[1:] == [LONGEST_SLOWDOWN * ALONE] * 4


def test_takes_that_are_not_kept_use_no_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """What follows the first run under load is disturbed, and taken again."""
    plan = plan_of(["solo", *["stream.triad"] * 3])
    runs, limits = campaign(
        monkeypatch,
        plan,
        lambda number: 14.0 * ALONE if number else ALONE,
        disturbed=lambda number: number > 4,
    )
    assert len(runs) == 4
    assert len(limits) >= 7
    assert all(run.ok and not run.cut_off for run in runs)
    # Those that were kept went on for 27 of the sixty runtimes.
    assert limits[-1] == LONGEST_SLOWDOWN * ALONE


def test_runs_under_load_go_on_until_their_programs_patience_is_used(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plan = plan_of(["solo", *["stream.triad"] * 9])
    runs, _ = campaign(monkeypatch, plan, lambda number: 14.0 * ALONE if number else ALONE)
    assert [run.cut_off for run in runs] == [False] * 7 + [True] * 3
    # Six went on for nine runtimes each.
    assert runs[-3].metric == pytest.approx((MOST_SLOWDOWN + PATIENCE - 54.0) * ALONE)
    assert runs[-2].metric == runs[-1].metric == pytest.approx(MOST_SLOWDOWN * ALONE)


class Lengths(WriteLimit):
    """Notes for how long each block was said to last."""

    def __init__(self) -> None:
        super().__init__(cast("Any", SimpleNamespace(surrogates=())))
        self.seen: list[float] = []

    def allows(self, levels: Iterable[LoadLevel], seconds: float) -> bool:
        self.seen.append(seconds)
        return True


def test_how_long_a_program_takes_is_said_by_its_runs_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plan = plan_of(["solo", "stream.triad", "stream.add"])
    lengths = Lengths()
    campaign(
        monkeypatch,
        plan,
        lambda number: 25.0 * ALONE if number else ALONE,
        write_limit=lengths,
    )
    assert lengths.seen[2] == lengths.seen[1] < 5.0 * ALONE


def test_a_resumed_campaign_goes_on_with_the_patience_that_is_left(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plan = plan_of(["solo", *["stream.triad"] * 7])

    def slow(number: int) -> float:
        return 14.0 * ALONE if number else ALONE

    whole, limits = campaign(monkeypatch, plan, slow)
    earlier = whole[:5]
    _, resumed = campaign(
        monkeypatch,
        plan,
        lambda number: slow(number + 5),
        earlier=earlier,
        done=frozenset(run.step for run in earlier),
    )
    assert resumed == limits[5:]
    assert all(limit is not None for limit in resumed)
    assert resumed[-1] < resumed[0]


@pytest.mark.parametrize("timeout_s", [1.2 * ALONE, 10.0 * ALONE])
def test_a_run_that_its_timeout_ends_under_load_is_a_lower_bound(
    monkeypatch: pytest.MonkeyPatch, timeout_s: float
) -> None:
    runs, _ = campaign(
        monkeypatch,
        plan_of(["solo", "stream.triad", "solo"]),
        lambda number: ALONE if number == 0 else 40.0 * ALONE,
        timeout_s=timeout_s,
    )
    alone, loaded, late = runs
    assert alone.ok
    assert (loaded.ok, loaded.cut_off, loaded.metric) == (True, True, timeout_s)
    assert (late.ok, late.cut_off) == (False, False)
