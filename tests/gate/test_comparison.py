"""Verdicts on machines that drift, and what is reported where there were too few runs."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Callable

import pytest

from kongming.gate.comparison import compare, compare_turns
from kongming.gate.noise import Goal
from kongming.gate.robust import autocorrelation_time
from kongming.gate.session import turn_orders
from kongming.records.errors import InputError
from tests.gate import worlds

GOAL, RUNS, TRIALS = Goal(0.05), 13, 250

Judge = Callable[[random.Random, worlds.Level, float], str]


def by_turns(r: random.Random, level: worlds.Level, factor: float) -> str:
    return compare_turns(*worlds.by_turns(r, level, RUNS, factor), GOAL).verdict


def apart(r: random.Random, level: worlds.Level, factor: float) -> str:
    return compare(*worlds.one_after_the_other(r, level, RUNS, factor), GOAL).verdict


def rates(world: str, judge: Judge, factor: float) -> Counter[str]:
    r = random.Random(3)
    return Counter(judge(r, worlds.WORLDS[world](r), factor) for _ in range(TRIALS))


@pytest.mark.parametrize("world", worlds.WORLDS)
def test_by_turns_the_stated_rates_hold_on_a_machine_that_drifts(world: str) -> None:
    same, slower = (rates(world, by_turns, factor) for factor in (1.0, 1.05))
    # Three standard errors of 250 trials.
    assert same["slower"] <= (0.05 + 0.042) * TRIALS
    assert slower["slower"] >= (0.9 - 0.057) * TRIALS
    assert slower["not slower"] <= (0.05 + 0.042) * TRIALS


def test_takes_apart_keep_them_on_a_steady_machine_alone() -> None:
    """Which is why programs are to be measured by turns."""
    assert rates("quiet", apart, 1.0)["slower"] <= (0.05 + 0.042) * TRIALS
    assert rates("quiet", apart, 1.05)["slower"] >= (0.9 - 0.057) * TRIALS
    assert rates("drift between takes", apart, 1.0)["slower"] > 0.1 * TRIALS


def test_runs_that_resemble_their_neighbours_count_as_fewer() -> None:
    """Drift that shows inside of the takes widens the interval."""
    r = random.Random(1)
    wandering = [math.exp(0.02 * math.sin(k / 9.0) + 0.002 * r.random()) for k in range(40)]
    shuffled = r.sample(wandering, len(wandering))
    candidate = [1.015 * time for time in wandering]
    assert compare(shuffled, r.sample(candidate, len(candidate)), GOAL).verdict == "slower"
    assert compare(wandering, candidate, GOAL).verdict == "cannot tell"


def test_too_few_runs_for_their_own_noise_are_no_verdict() -> None:
    """Not even where by luck the interval ends below the effect."""
    wild = [1.0, 1.04, 0.96, 1.02, 0.98, 1.05, 0.95]
    a_little_quicker = [0.98 * time for time in wild]
    judged = compare(wild, a_little_quicker, GOAL)
    assert judged.upper < 1.05
    assert judged.verdict == "cannot tell"
    assert str(judged).startswith(f"cannot tell: {judged.more} more runs of each")
    # With as many more it is one; what is trimmed of few runs is a matter of luck.
    many = math.ceil((judged.runs + judged.more) / len(wild)) + 1
    enough = compare(wild * many, a_little_quicker * many, GOAL)
    assert (enough.verdict, enough.more) == ("not slower", 0)
    # A clear difference needs no more.
    for factor, verdict in ((2.0, "slower"), (0.5, "not slower")):
        clear = compare(wild, [factor * time for time in wild], GOAL)
        assert (clear.verdict, clear.more) == (verdict, 0)


def test_a_difference_below_the_effect_needs_more_than_the_effect() -> None:
    times = [1.0, 1.06, 0.94, 1.03, 0.97, 1.05, 0.95] * 2
    half, none = (compare(times, [factor * t for t in times], GOAL) for factor in (1.025, 1.0))
    assert half.verdict == none.verdict == "cannot tell"
    assert half.runs + half.more > 3 * (none.runs + none.more)


def test_turns_have_two_times_each() -> None:
    with pytest.raises(InputError, match="number of turns"):
        compare_turns([1.0] * 8, [1.0] * 7, GOAL)
    with pytest.raises(InputError, match="too few runs"):
        compare_turns([1.0] * 5, [1.0] * 5, GOAL)


def test_equal_values_have_no_order() -> None:
    """Those of a coarse clock; by their places in the list they looked like a trend."""
    assert autocorrelation_time([1.0] * 40) == 1.0
    r = random.Random(2)
    assert autocorrelation_time([float(r.random() < 0.1) for _ in range(40)]) < 2.0


@pytest.mark.parametrize("turns", [13, 15, 18])
@pytest.mark.parametrize("gain", [-0.05, -0.02, 0.02, 0.05])
def test_the_place_in_a_turn_is_no_difference_between_programs(gain: float, turns: int) -> None:
    """Whoever runs second runs quicker, or slower: caches are warm, or the clock is lower."""
    r = random.Random(1)

    def verdict(factor: float) -> str:
        orders = turn_orders(2)
        seconds: list[list[float]] = [[], []]
        for _ in range(turns):
            for place, program in enumerate(next(orders)):
                second = math.exp(-gain * place + r.gauss(0.0, 0.01))
                seconds[program].append(second if program else factor * second)
        return compare_turns(seconds[1], seconds[0], GOAL).verdict

    assert [verdict(1.0) for _ in range(20)].count("slower") <= 3
    assert [verdict(1.05) for _ in range(20)].count("not slower") <= 3
