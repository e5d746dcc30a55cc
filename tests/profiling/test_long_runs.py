"""Runs under load that take many times longer than alone: which are ended, and what that costs."""

from __future__ import annotations

from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from kongming.profiling.plans.run_limit import LONGEST_SLOWDOWN, MOST_SLOWDOWN, PATIENCE
from kongming.profiling.write_limit import WriteLimit
from kongming.records.run import LoadLevel
from tests.profiling.scripted import Runner, campaign, plan_of

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
    """Records how long each block was estimated to last."""

    def __init__(self) -> None:
        super().__init__(cast("Any", SimpleNamespace(surrogates=())))
        self.seen: list[float] = []

    def allows(self, levels: Iterable[LoadLevel], seconds: float) -> bool:
        self.seen.append(seconds)
        return True


class Ending(WriteLimit):
    """Lets each load run for so long, whatever it writes."""

    def __init__(self, load_s: float) -> None:
        super().__init__(cast("Any", SimpleNamespace(surrogates=())))
        self.load_s = load_s

    def seconds(self, levels: Iterable[LoadLevel]) -> float | None:
        return self.load_s if [*levels] else None


@pytest.mark.parametrize("load_s", [7.0 * ALONE, 20.0 * ALONE])
def test_a_long_run_ends_before_the_load_that_may_write_no_more(
    monkeypatch: pytest.MonkeyPatch, load_s: float
) -> None:
    (_, run), limits = campaign(
        monkeypatch,
        plan_of(["solo", "iobench.write.4M"]),
        lambda number: 25.0 * ALONE if number else ALONE,
        load_s=load_s,
        fingerprint_s=0.5,
        disturbed=lambda number: number > 2,
        write_limit=Ending(load_s),
    )
    assert (run.error, run.ok, run.cut_off) == (None, True, True)
    # All of it, and the fingerprints, under the load; and nearly as long as that lasted.
    assert MOST_SLOWDOWN * ALONE <= run.metric == limits[1] < load_s - 1.0
    assert run.metric >= load_s - 3.0
    # It was disturbed, but there is no time for another.
    assert len(limits) == 2


def test_a_run_that_ended_is_kept_where_its_load_ends_during_the_next_take(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The first take under the load is disturbed, and the load ends in the second one."""
    (*_, run), limits = campaign(
        monkeypatch,
        plan_of(["solo", "stream.triad", "stream.triad"]),
        lambda number: 2.0 * ALONE if number else ALONE,
        load_s=3.0 * ALONE,
        disturbed=lambda number: number > 4,
    )
    assert len(limits) == 4
    assert (run.error, run.ok, run.metric) == (None, True, 2.0 * ALONE)


def test_the_time_that_ending_a_run_takes_is_no_part_of_its_bound(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It may have ended by itself meanwhile."""
    monkeypatch.setattr(Runner, "ending_s", 0.2)
    runs, limits = campaign(
        monkeypatch,
        plan_of(["solo", *["stream.add"] * 6]),
        lambda number: 100.0 * ALONE if number else ALONE,
    )
    assert all(run.cut_off for run in runs[1:])
    assert [run.metric for run in runs[1:]] == limits[1:]


def test_a_run_too_short_for_a_bound_fails_where_its_load_may_write_no_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    load_s = 4.0 * ALONE
    (_, run), limits = campaign(
        monkeypatch,
        plan_of(["solo", "iobench.write.4M"]),
        lambda number: 25.0 * ALONE if number else ALONE,
        load_s=load_s,
        write_limit=Ending(load_s),
    )
    assert limits[1] == MOST_SLOWDOWN * ALONE
    assert not run.ok
    assert "ended during the run, as it had written what it may in all" in (run.error or "")
    # One that ends in time is a run like any other.
    (_, run), _ = campaign(
        monkeypatch,
        plan_of(["solo", "iobench.write.4M"]),
        lambda number: 3.0 * ALONE if number else ALONE,
        load_s=load_s,
        write_limit=Ending(load_s),
    )
    assert (run.ok, run.cut_off, run.metric) == (True, False, 3.0 * ALONE)


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

    uninterrupted, limits = campaign(monkeypatch, plan, slow)
    earlier = uninterrupted[:5]
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
