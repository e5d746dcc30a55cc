"""Noise, repetitions and verdicts against programs whose truth is known."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from statistics import median

import pytest
from scipy import special

from kongming.gate.comparison import compare, compare_suite
from kongming.gate.noise import (
    Goal,
    noise,
    repetitions,
    repetitions_at_most,
    rounds_needed,
    smallest_effect,
)
from kongming.gate.robust import t_quantile, t_tail
from kongming.records.errors import InputError
from tests.variants import variants

Draw = Callable[[random.Random], float]

SHAPES: dict[str, Draw] = {
    "normal": lambda r: r.gauss(0.0, 1.0),
    "outliers": lambda r: r.gauss(0.0, 1.0) + (8.0 * r.random() if r.random() < 0.1 else 0.0),
    "two peaks": lambda r: (2.0 if r.random() < 0.5 else 0.0) + r.gauss(0.0, 0.2),
}


def times(draw: Draw, r: random.Random, runs: int, factor: float = 1.0) -> list[float]:
    return [factor * math.exp(0.02 * draw(r)) for _ in range(runs)]


@pytest.mark.parametrize("shape", variants(SHAPES))
def test_the_stated_rates_hold(shape: str) -> None:
    """An unchanged program is called slower at most as often as stated, one that is slower by the
    effect is found as often as stated, and the bound of the noise covers it."""
    draw, r, goal = SHAPES[shape], random.Random(7), Goal(0.02)
    truth = noise(times(draw, r, 4000)).estimate
    needed, trials = repetitions(truth, goal), 500
    called = detected = covered = 0
    for _ in range(trials):
        baseline = times(draw, r, needed)
        called += compare(baseline, times(draw, r, needed), goal).verdict == "slower"
        detected += compare(baseline, times(draw, r, needed, 1.02), goal).verdict == "slower"
        covered += noise(times(draw, r, 10)).upper >= truth
    # Three standard errors of 500 trials: 0.03 at 5 %, 0.04 at 90 %.
    assert called / trials < 0.05 + 0.03
    assert detected / trials > 0.9 - 0.04
    assert covered / trials > 0.8


@pytest.mark.parametrize("degrees", [3.0, 3.7, 12.0, 99.0, 400.0])
@pytest.mark.parametrize("beyond", [0.4, 0.05, 1e-4, 1e-6])
def test_quantiles_of_t_are_exceeded_as_often_as_stated(degrees: float, beyond: float) -> None:
    quantile = t_quantile(1.0 - beyond, degrees)
    assert special.stdtr(degrees, -quantile) == pytest.approx(beyond, rel=1e-3)


@pytest.mark.parametrize("degrees", [1.0, 3.0, 12.5])
@pytest.mark.parametrize("t", [0.0, 1e-170, 2.0, 1e6, 3e8, 1e12, 1e160, math.inf])
def test_the_tail_of_t_has_no_end(t: float, degrees: float) -> None:
    expected = float(special.stdtr(degrees, -t))
    assert t_tail(t, degrees) == pytest.approx(expected, rel=1e-9, abs=1e-300)
    assert t_tail(-t, degrees) == pytest.approx(1.0 - expected)


def test_programs_that_hardly_vary_are_compared() -> None:
    """As by a clock that counts instructions: t is a thousand millions."""
    steady = [1.0 + 1e-13 * k for k in (0, 1, 0, 2, 1, 0, 1, 2)]
    slower = [1.01 * time for time in reversed(steady)]
    goal = Goal(0.005)
    pairs = [(steady, slower), (slower, steady), (steady, steady)]
    verdicts = [each.verdict for each in compare_suite(pairs, goal)]
    assert verdicts == ["slower", "not slower", "not slower"]


def test_repetitions_are_the_fewest_that_show_the_effect() -> None:
    for sigma in (0.001, 0.01, 0.03, 0.1, 0.5):
        goal = Goal(0.02)
        needed = repetitions(sigma, goal)
        assert smallest_effect(sigma, needed, goal) <= 0.02 * (1 + 1e-9)
        if needed > 6:
            assert smallest_effect(sigma, needed - 1, goal) > 0.02 * 0.99
    assert repetitions(0.0, Goal()) == 6


def test_rounds_that_resemble_their_neighbours_count_as_fewer() -> None:
    r, goal = random.Random(3), Goal(0.02)
    independent = times(SHAPES["normal"], r, 4000)
    # The same rounds, in an order in which the slow ones follow one another.
    drifting = sorted(independent)
    assert rounds_needed(drifting, goal) > 5 * rounds_needed(independent, goal)
    # As many as repetitions that are known to be independent, within the block's size.
    assert rounds_needed(independent, goal) >= repetitions(noise(independent).estimate, goal)


def test_medians_of_as_many_rounds_as_are_needed_keep_the_rates() -> None:
    """As --benchmark-compare-fail median:3% compares them, for an effect of 5 %."""
    r, goal, trials, rounds = random.Random(11), Goal(0.05), 60, 400

    def draws(scale: float, factor: float, draw: Draw) -> list[float]:
        return [factor * math.exp(scale * draw(r)) for _ in range(rounds)]

    def judged(scale: float, draw: Draw) -> list[tuple[bool, bool]]:
        """Of each trial in which there were enough: whether an unchanged and a slower program
        go beyond the threshold."""
        verdicts = []
        for _ in range(trials):
            runs = [draws(scale, factor, draw) for factor in (1.0, 1.0, 1.05)]
            if max(rounds_needed(run, goal) for run in runs) <= rounds:
                before, same, slower = map(median, runs)
                verdicts.append((same > 1.03 * before, slower > 1.03 * before))
        return verdicts

    for scale, draw in ((0.05, SHAPES["normal"]), (0.05, SHAPES["outliers"])):
        verdicts = judged(scale, draw)
        assert len(verdicts) > 0.8 * trials
        assert sum(same for same, _ in verdicts) <= 0.05 * len(verdicts) + 3
        assert sum(slower for _, slower in verdicts) >= 0.9 * len(verdicts) - 3
    # The median lies between the peaks, so it is one or the other by chance.
    assert len(judged(0.05, SHAPES["two peaks"])) < 0.3 * trials


@pytest.mark.parametrize("share", [0.0, 0.1, 0.2])
def test_a_rare_second_peak_does_not_cost_the_power(share: float) -> None:
    """Of all machines that are called fit by 20 runs, with as many repetitions as are stated."""
    r, goal, trials = random.Random(5), Goal(0.02), 60

    def draw(r: random.Random) -> float:
        return (4.0 if r.random() < share else 0.0) + r.gauss(0.0, 0.2)

    detected = fit = 0
    for _ in range(trials):
        needed = repetitions_at_most(times(draw, r, 20), goal)
        if needed <= 100:
            fit += 1
            baseline = times(draw, r, needed)
            detected += compare(baseline, times(draw, r, needed, 1.02), goal).verdict == "slower"
    assert fit - detected <= 0.1 * trials
    assert fit > 0.9 * trials if share == 0.0 else fit < trials


def test_a_verdict_may_be_that_there_is_none() -> None:
    goal = Goal(0.02)
    steady = [1.0, 1.001, 0.999, 1.0, 1.002, 0.998]
    assert compare(steady, steady, goal).verdict == "not slower"
    assert compare(steady, [1.05 * t for t in steady], goal).verdict == "slower"
    assert compare(steady, [0.9 * t for t in steady], goal).verdict == "not slower"
    wild = [1.0, 1.3, 0.8, 1.1, 0.7, 1.2]
    assert compare(wild, wild, goal).verdict == "cannot tell"
    ratio = compare(steady, [1.05 * t for t in steady], goal)
    assert ratio.ratio == pytest.approx(1.05)
    assert ratio.lower < 1.05 < ratio.upper


def test_what_is_no_sample_is_refused() -> None:
    with pytest.raises(InputError, match="too few"):
        noise([1.0] * 5)
    with pytest.raises(InputError, match=r"above 0"):
        noise([1.0] * 5 + [0.0])
    for out_of_range in (
        {"effect": 1.5}, {"effect": 1e-200}, {"false_positives": 1e-17}, {"power": 0.01},
    ):  # fmt: skip
        with pytest.raises(InputError, match=next(iter(out_of_range))):
            Goal(**out_of_range)
