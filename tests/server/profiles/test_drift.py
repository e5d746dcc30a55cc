"""The sequential test: false alarms no more often than it says, and changes that it finds."""

from __future__ import annotations

import math
import statistics

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kongming_server.quality.drift import LEAST_PROMISED, DriftTest, Verdict


def life(
    random: np.random.Generator,
    *,
    promised: int = 28,
    runs: int = 150,
    change: int | None = None,
    shift: float = 0.0,
    scale: float = 1.0,
    false_alarm: float = 0.01,
    heavy: bool = False,
) -> Verdict:
    """One model's life: scores as validated, and from run ``change`` on shifted and scaled. It
    ends with the first alarm."""
    law = (lambda n: random.standard_t(3, n)) if heavy else random.standard_normal
    test = DriftTest(law(promised).tolist(), false_alarm=false_alarm)
    values = law(runs)
    if change is not None:
        values[change:] = scale * values[change:] + shift
    verdict = test.verdict
    for number, value in enumerate(values.tolist()):
        verdict = test.add(value, f"run-{number}-{random.integers(1 << 60)}")
        if verdict.drifted:
            break
    return verdict


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("promised", "heavy", "runs"),
    [
        (5, False, 50),
        pytest.param(5, False, 150, marks=pytest.mark.thorough),
        *(pytest.param(n, True, 150, marks=pytest.mark.thorough) for n in (28, 10)),
        pytest.param(100, False, 150, marks=pytest.mark.thorough),
    ],
)
def test_false_alarms_over_whole_lives_are_no_more_than_was_set(
    promised: int, heavy: bool, runs: int
) -> None:
    random = np.random.default_rng(promised)
    allowed, lives = 0.1, 300
    alarms = sum(
        life(random, promised=promised, heavy=heavy, runs=runs, false_alarm=allowed).drifted
        for _ in range(lives)
    )
    # Three standard errors of a share over so many lives.
    assert alarms / lives <= allowed + 3.0 * math.sqrt(allowed * (1.0 - allowed) / lives)


@pytest.mark.thorough
def test_false_alarms_at_one_in_a_hundred_after_a_thousand_runs() -> None:
    random = np.random.default_rng(5)
    alarms = sum(life(random, runs=1000).drifted for _ in range(60))
    # Four or more of sixty have a probability below 0.004 where each has one of 0.01.
    assert alarms <= 3


@pytest.mark.parametrize("change", [0, 30, 300])
@pytest.mark.parametrize(("shift", "side"), [(4.0, "slower"), (-4.0, "faster")])
def test_a_shift_of_two_intervals_is_found_within_twenty_runs(
    change: int, shift: float, side: str
) -> None:
    random = np.random.default_rng(7)
    verdicts = [life(random, runs=change + 40, change=change, shift=shift) for _ in range(20)]
    right = [verdict for verdict in verdicts if verdict.drifted and verdict.runs > change]
    assert len(right) >= 19
    assert statistics.median(verdict.runs - change for verdict in right) <= 20
    assert statistics.median(abs((v.since or 0) - change) for v in right) <= 2
    assert {verdict.side for verdict in right} <= {side, "either"}


@pytest.mark.parametrize(("promised", "large"), [(5, 0), (10, 0), (10, 3), (28, 3)])
@pytest.mark.parametrize(("sign", "side"), [(1.0, "slower"), (-1.0, "faster")])
def test_twenty_runs_suffice_with_few_scores_some_of_which_are_as_large_as_the_drift(
    promised: int, large: int, sign: float, side: str
) -> None:
    random = np.random.default_rng(11)
    verdicts = []
    for _ in range(40):
        scores = random.standard_normal(promised)
        scores[:large] += sign * 5.0
        test = DriftTest(scores.tolist())
        for number in range(20):
            test.add(float(random.standard_normal() + sign * 5.0), f"run-{number}")
        verdicts.append(test.verdict)
    detected = [verdict for verdict in verdicts if verdict.drifted]
    assert len(detected) >= 36
    assert {verdict.side for verdict in detected} == {side}
    assert statistics.median(verdict.since or 0 for verdict in detected) <= 1


@pytest.mark.parametrize("tied", [0, 3])
def test_equal_runs_are_found_whatever_their_ids(tied: int) -> None:
    """Ties are broken by the ids, which a server draws."""
    for attempt in range(50):
        test = DriftTest([5.0] * tied + [0.0] * (10 - tied))
        for number in range(25):
            test.add(5.0, f"{attempt}-{number}")
        assert test.verdict.drifted


def test_errors_that_grow_on_both_sides_are_found() -> None:
    random = np.random.default_rng(8)
    verdicts = [life(random, promised=40, change=50, scale=6.0, runs=150) for _ in range(20)]
    assert sum(verdict.drifted for verdict in verdicts) >= 19


def test_errors_that_shrink_are_no_drift() -> None:
    random = np.random.default_rng(9)
    assert not any(life(random, change=0, scale=0.05, runs=300).drifted for _ in range(20))


def test_too_few_promises_are_held_against_nobody() -> None:
    test = DriftTest([0.0] * (LEAST_PROMISED - 1))
    for number in range(200):
        test.add(50.0, str(number))
    assert not test.verdict.drifted


def test_drift_stays_found() -> None:
    test = DriftTest(np.linspace(-1.0, 1.0, 40).tolist())
    number = 0
    while not test.verdict.drifted:
        test.add(9.0, str(number))
        number += 1
        assert number < 40
    first = test.verdict
    for later in range(200):
        test.add(0.0, f"later-{later}")
    assert test.verdict.drifted
    assert (test.verdict.since, test.verdict.side) == (first.since, first.side) == (0, "slower")


def test_equal_scores_are_no_evidence() -> None:
    test = DriftTest([0.0] * 30)
    for number in range(300):
        test.add(0.0, f"run-{number}")
    assert not test.verdict.drifted


def test_a_score_that_is_no_number_is_refused() -> None:
    with pytest.raises(ValueError, match="number"):
        DriftTest([0.0] * 30).add(math.nan, "x")


@settings(deadline=None, max_examples=50)
@given(
    st.lists(st.floats(-50, 50), min_size=10, max_size=40),
    st.lists(st.floats(-50, 50), max_size=40),
)
def test_only_the_order_of_scores_counts_and_every_server_says_the_same(
    promised: list[float], scores: list[float]
) -> None:
    first, same, scaled = (
        DriftTest(promised),
        DriftTest(reversed(promised)),
        # A power of two keeps ties and order.
        DriftTest([4.0 * score for score in promised]),
    )
    for number, score in enumerate(scores):
        first.add(score, str(number))
        same.add(score, str(number))
        scaled.add(4.0 * score, str(number))
    assert first.verdict == same.verdict == scaled.verdict
    assert first.verdict.runs == len(scores)
    assert first.verdict.evidence > 0.0
