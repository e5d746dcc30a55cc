"""How long a campaign still takes: by the pace of each of its parts, within what a limit leaves."""

from __future__ import annotations

import math

from kongming.campaigns.campaign import Budget
from kongming.cli.profile.campaign_view import CampaignView
from kongming.cli.profile.pace import Pace
from kongming.profiling.events import Doing


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_steps_that_were_done_before_do_not_count() -> None:
    clock = Clock()
    pace = Pace(clock)
    for step in (40, 41, 42):
        pace.see(0, step, 100)
        assert pace.seconds_left() is None or step == 42
        clock.now += 10.0
    # 30 s for two steps: the third is under way.
    assert pace.seconds_left() == 15.0 * 58


def test_parts_that_measure_in_turns_have_a_pace_of_their_own() -> None:
    clock = Clock()
    pace = Pace(clock)
    for step in range(4):
        pace.see(0, step, 10)
        clock.now += 2.0
        pace.see(1, step, 100)
        if step < 3:
            clock.now += 30.0
    # 8 s for three steps of the one, 90 s for three of the other.
    assert pace.seconds_left() == 8.0 / 3 * 7 + 30.0 * 97


def test_a_part_that_just_began_leaves_the_rest_unknown() -> None:
    clock = Clock()
    pace = Pace(clock)
    for step in range(3):
        pace.see(0, step, 10)
        clock.now += 1.0
    pace.see(1, 0, 10)
    assert pace.seconds_left() == math.inf
    view = CampaignView(["a"], "title", quiet=True)
    for part, step in ((0, 0), (0, 1), (0, 2), (1, 0)):
        view.see(Doing("a alone", step, 1000, "a", part))
    assert view.seconds_left() is None
    view.time_left = lambda: 60.0
    assert view.seconds_left() == 60.0


def test_it_takes_at_most_what_a_budget_leaves() -> None:
    for seconds, expected in ((None, False), (1e-9, True)):
        budget = Budget(seconds)
        assert budget.seconds_left() == seconds
        view = CampaignView(["a"], "title", quiet=True)
        view.time_left = budget.seconds_left
        assert not budget()
        for step in range(3):
            view.see(Doing("a alone", step, 1000, "a"))
        assert (view.seconds_left() == 0.0) is expected
        assert budget() is expected
