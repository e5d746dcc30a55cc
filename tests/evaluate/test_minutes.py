"""How long measuring took, by the records of campaigns."""

from __future__ import annotations

import dataclasses
import math
from datetime import UTC, datetime, timedelta

import pytest

from kongming.evaluate.minutes import campaign_costs, machine_seconds
from kongming.evaluate.predicted_pairs import span_s
from kongming.records.run import Run
from tests import builders

BEGIN = datetime(2026, 1, 1, tzinfo=UTC)


def run(at_s: float, wall_s: float) -> Run:
    started = (BEGIN + timedelta(seconds=at_s)).isoformat().replace("+00:00", "Z")
    return builders.run("any", wall_s, started_at=started, wall_s=wall_s)


def test_a_run_that_goes_on_for_long_is_no_interruption() -> None:
    """Each run of 3 s comes 2 s after the one before; one is slowed 30 times, then an hour passes
    before the last."""
    runs = [run(5.0 * k, 3.0) for k in range(6)]
    runs += [run(30.0, 90.0), run(122.0, 3.0), run(3722.0, 3.0)]
    seconds = [time for _, time in machine_seconds(runs)]
    assert seconds == pytest.approx([3.0, *[5.0] * 5, 92.0, 5.0, 5.0])
    assert math.fsum(seconds) == pytest.approx(130.0)


def test_profiles_and_pairs_that_take_turns_share_the_time() -> None:
    """Runs of 3 s begin every 5 s: profile, pair, profile, pair ..., and one is of both."""
    profile = [run(10.0 * k, 3.0) for k in range(4)]
    pairs = [run(10.0 * k + 5.0, 3.0) for k in range(4)]
    of_profiles, of_pairs = campaign_costs(profile, pairs)
    assert [seconds for _, seconds in of_profiles] == pytest.approx([3.0, 5.0, 5.0, 5.0])
    assert [seconds for _, seconds in of_pairs] == pytest.approx([5.0] * 4)
    of_profiles, of_pairs = campaign_costs(profile, [profile[3], *pairs])
    assert math.fsum(seconds for _, seconds in of_profiles) == pytest.approx(18.0)
    assert math.fsum(seconds for _, seconds in of_pairs) == pytest.approx(25.0)


def test_the_time_of_one_machine_is_none_of_another() -> None:
    """Two machines measure at the same time, each every 5 s."""
    there = [dataclasses.replace(run(5.0 * k + 2.0, 3.0), node_id="there") for k in range(3)]
    of_profiles, of_pairs = campaign_costs([run(5.0 * k, 3.0) for k in range(3)], there)
    for costs in (of_profiles, of_pairs):
        assert [seconds for _, seconds in costs] == pytest.approx([3.0, 5.0, 5.0])


def test_what_is_an_interruption_depends_on_the_campaign() -> None:
    """Two campaigns on one node: a gap of a minute is long next to 2 s, and usual next to 20 s."""
    quick = [dataclasses.replace(run(2.0 * k, 1.0), campaign="quick") for k in range(5)]
    slow = [dataclasses.replace(run(100.0 + 20.0 * k, 1.0), campaign="slow") for k in range(5)]
    late = dataclasses.replace(run(240.0, 1.0), campaign="slow")
    again = dataclasses.replace(run(300.0, 1.0), campaign="quick")
    of_profiles, of_pairs = campaign_costs([*quick, again], [*slow, late])
    assert [seconds for _, seconds in of_profiles] == pytest.approx([1.0, *[2.0] * 5])
    assert [seconds for _, seconds in of_pairs][-1] == pytest.approx(60.0)


def test_the_time_of_campaigns_in_turns_counts_once() -> None:
    def of(campaign: str, *at_s: float) -> list[Run]:
        return [dataclasses.replace(run(at, 3.0), campaign=campaign) for at in at_s]

    profile, pairs = of("profile", 0.0, 10.0, 20.0), of("pairs", 5.0, 15.0, 35.0)
    assert span_s(profile) == pytest.approx(23.0)
    assert span_s([*profile, *pairs]) == pytest.approx(38.0)
    assert span_s([*profile, *pairs, *of("within", 11.0)]) == pytest.approx(38.0)
    # A profile of the day before took its own time, not the day.
    assert span_s([*profile, *pairs, *of("before", -9e4, -8.9e4)]) == pytest.approx(1041.0)
    assert span_s([]) == 0.0
