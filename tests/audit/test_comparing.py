"""Comparisons: what they promise, on data whose truth is known."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kongming.audit.analysis.comparison import Side, compare, hodges_lehmann
from tests.audit.test_statistics import first_order

TRIALS = 120


def side(*recordings: object) -> Side:
    return Side([np.asarray(recording) for recording in recordings], ["m"] * len(recordings))


@pytest.mark.thorough
@pytest.mark.parametrize(("n", "correlation"), [(30, 0.0), (120, 0.6)])
def test_intervals_of_the_ratio_hold_it(n: int, correlation: float) -> None:
    random = np.random.default_rng(1)
    held = wrong = 0
    for _ in range(TRIALS):
        a, b = (np.exp(0.05 * first_order(random, n, correlation)) for _ in range(2))
        comparison = compare({("", "program", "x"): (side(a), side(b))}, 0.05)[0]
        assert comparison.lower is not None
        assert comparison.upper is not None
        held += comparison.lower <= 1.0 <= comparison.upper
        wrong += comparison.verdict == "differs"
    assert held / TRIALS > 0.88
    assert wrong == 0


@pytest.mark.thorough
def test_what_lies_at_the_tolerance_is_seldom_decided() -> None:
    random = np.random.default_rng(2)
    decided = 0
    for _ in range(TRIALS):
        a, b = (np.exp(0.05 * random.normal(size=60)) for _ in range(2))
        comparison = compare({("", "program", "x"): (side(a), side(1.05 * b))}, 0.05)[0]
        decided += comparison.verdict != "cannot tell"
    # 5 % for each of the two verdicts, and three standard errors.
    assert decided / TRIALS <= 0.18


def test_recordings_that_differ_by_themselves_are_no_difference() -> None:
    random = np.random.default_rng(3)

    def drawn() -> Side:
        return side(
            *(np.exp(0.1 * random.normal() + 0.01 * random.normal(size=50)) for _ in range(4))
        )

    verdicts = [
        compare({("", "program", "x"): (drawn(), drawn())}, 0.02)[0].verdict for _ in range(60)
    ]
    assert verdicts.count("differs") <= 6


def test_recordings_of_two_machines_are_not_independent() -> None:
    random = np.random.default_rng(6)

    def drawn() -> Side:
        parts = [
            np.exp(level + 0.005 * random.normal(size=30))
            for level in 0.05 * random.normal(size=2)
            for _ in range(4)
        ]
        return Side(parts, ["m1"] * 4 + ["m2"] * 4)

    pairs = [(drawn(), drawn()) for _ in range(60)]
    comparisons = [compare({("", "program", "x"): pair}, 0.02)[0] for pair in pairs]
    held = [c.lower <= 1.0 <= c.upper for c in comparisons if c.lower and c.upper]
    # 95 %, less three standard errors; recordings as units held it in 70 %.
    assert sum(held) / len(pairs) > 0.86
    assert sum(c.verdict == "differs" for c in comparisons) <= 7


@pytest.mark.thorough
@pytest.mark.parametrize(("count", "longer"), [(4, 100), (10, 10), (10, 30)])
def test_a_long_recording_among_short_ones_proves_no_difference(count: int, longer: int) -> None:
    random = np.random.default_rng(4)

    def drawn(shift: float) -> Side:
        sizes = [20 * longer] + [20] * (count - 1)
        levels = [shift + 0.05 * random.normal() for _ in sizes]
        return side(
            *(
                np.exp(level + 0.02 * random.normal(size=n))
                for level, n in zip(levels, sizes, strict=True)
            )
        )

    pairs = [(drawn(0.0), drawn(np.log(1.05))) for _ in range(TRIALS)]
    comparisons = [compare({("", "program", "x"): pair}, 0.05)[0] for pair in pairs]
    # 5 %, and three standard errors.
    assert sum(c.verdict == "differs" for c in comparisons) / TRIALS <= 0.11
    held = [c.lower <= 1.05 <= c.upper for c in comparisons if c.lower and c.upper]
    assert sum(held) / TRIALS > 0.88


def test_more_readings_are_asked_for_where_it_is_close() -> None:
    random = np.random.default_rng(4)
    a, b = (np.exp(0.2 * random.normal(size=40)) for _ in range(2))
    comparison = compare({("", "program", "x"): (side(a), side(b))}, 0.05)[0]
    assert comparison.verdict == "cannot tell"
    # So many of each side, and the 40 that there are do not suffice.
    assert comparison.more is not None
    assert comparison.more > 40


def test_few_readings_tell_nothing() -> None:
    few, many = side(np.ones(5)), side(np.ones(50))
    comparison = compare({("", "program", "x"): (few, many)}, 0.05)[0]
    assert (comparison.verdict, comparison.more) == ("cannot tell", 3)


@pytest.mark.parametrize(
    ("level", "slower", "tolerance"), [(15.0, 1.033, 0.01), (16.3, 1.016, 0.05)]
)
def test_of_a_coarse_metric_the_medians_are_not_certain(
    level: float, slower: float, tolerance: float
) -> None:
    random = np.random.default_rng(8)

    def verdicts(step: float) -> list[str]:
        """Of medians anywhere within a step, read in whole steps with little noise."""
        result = []
        for _ in range(40):
            base = level + random.uniform(-0.5, 0.5)
            a, b = (
                np.round(base * factor * np.exp(0.003 * random.normal(size=40)) / step) * step
                for factor in (1.0, slower)
            )
            result.append(compare({("", "program", "x"): (side(a), side(b))}, tolerance)[0])
        return [comparison.verdict for comparison in result]

    wrong = "equivalent" if slower > 1.0 + tolerance else "differs"
    assert verdicts(1.0).count(wrong) <= 4
    assert "cannot tell" in verdicts(1.0)
    # In fine steps the same readings decide.
    assert set(verdicts(0.001)) == {"differs" if wrong == "equivalent" else "equivalent"}


def test_what_is_too_coarse_says_so() -> None:
    a, b = np.full(40, 16.0), np.full(40, 17.0)
    a[:4] = 17.0
    comparison = compare({("", "program", "x"): (side(a), side(b))}, 0.05)[0]
    assert (comparison.verdict, comparison.more, comparison.coarse) == ("cannot tell", None, True)
    # A step that is far below the tolerance hinders nothing.
    comparison = compare({("", "program", "x"): (side(a * 0 + 1600), side(b * 0 + 1601))}, 0.05)[0]
    assert comparison.verdict == "equivalent"


@given(
    st.lists(st.floats(-5.0, 5.0), min_size=1, max_size=12),
    st.lists(st.floats(-5.0, 5.0), min_size=1, max_size=12),
)
def test_hodges_and_lehmann_is_the_median_of_all_differences(
    a: list[float], b: list[float]
) -> None:
    every = np.sort(np.subtract.outer(np.array(b), np.array(a)).ravel())
    lower = every[(len(every) - 1) // 2]
    assert hodges_lehmann(np.array(a), np.array(b)) == pytest.approx(lower, abs=1e-6)
