"""The coverage of intervals, and the interval of the coverage."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from kongming.evaluate import PairMeasurement, PairPrediction, score_pairs
from kongming.evaluate.tables import remarks
from kongming.records.errors import InputError


def scored(
    measured: Sequence[PairMeasurement], predicted: Sequence[PairPrediction]
) -> dict[str, Any]:
    """The document of pairs of programs that each take a second alone."""
    repeats = len(measured[0].values)
    return score_pairs(
        measured,
        predicted,
        solo=dict.fromkeys((pair.app for pair in measured), 1.0),
        training_mean={},
        repeats=repeats,
        chosen={},
        placement="cross-core",
        node={},
        runs=repeats * len(measured),
        elapsed_s=0.0,
        scored="raw",
    )


def covered(held: dict[str, list[bool]], **changes: Any) -> dict[str, Any]:
    """Coverage where each application's partners lie within the interval of 0.8 to 1.2, or not."""
    measured, predicted = [], []
    for app, partners in held.items():
        for k, inside in enumerate(partners):
            measured.append(PairMeasurement(app, f"p{k}", (1.0 if inside else 2.0,)))
            bounds: dict[str, Any] = {"lower": 0.8, "upper": 1.2} | changes
            predicted.append(PairPrediction(app, f"p{k}", "auto", 1.0, **bounds))
    document = scored(measured, predicted)
    coverage = document["coverage"]
    # With one repeat a run is the mean.
    return {"level": coverage["level"], **coverage["run"]}


def test_share_width_and_interval_by_hand() -> None:
    held = {f"a{k}": [True, True, True, k < 5] for k in range(10)}
    coverage = covered(held)
    assert coverage["level"] == 0.9
    assert coverage["actual"] == pytest.approx(35 / 40)
    assert coverage["median_width_pct"] == pytest.approx(40.0)
    # Clustered: 10/9 x 10 x 0.5^2 / 40^2 = 0.0017. Binomial, which is more: 37/44 x 7/44 / 44.
    reach = 2.262 * math.sqrt(37 / 44 * 7 / 44 / 44)
    assert coverage["interval"] == pytest.approx([0.875 - reach, 0.875 + reach])


def test_applications_that_are_all_or_nothing_widen_the_interval() -> None:
    mixed = {f"a{k}": [j % 4 > 0 for j in range(8)] for k in range(12)}
    lumped = {f"a{k}": [k % 4 > 0] * 8 for k in range(12)}
    low, high = covered(mixed)["interval"]
    wide_low, wide_high = covered(lumped)["interval"]
    assert covered(mixed)["actual"] == covered(lumped)["actual"] == 0.75
    assert wide_high - wide_low > 2 * (high - low)


def test_endless_intervals_cover_everything() -> None:
    coverage = covered({"a": [True, False], "b": [False, False]}, lower=0.0, upper=math.inf)
    assert coverage["actual"] == 1.0
    assert coverage["interval"][1] == 1.0
    assert coverage["median_width_pct"] is None


def test_one_application_says_nothing_about_others() -> None:
    coverage = covered({"a": [True, False, True]})
    assert coverage["actual"] == pytest.approx(2 / 3)
    assert coverage["interval"] == [None, None]


def test_no_interval_no_coverage() -> None:
    coverage = covered({"a": [True]}, lower=None, upper=None)
    assert coverage == {
        "level": None,
        "actual": None,
        "interval": [None, None],
        "median_width_pct": None,
        "at_least": {"n": 0, "above": 0, "below": 0},
    }


def test_intervals_of_different_levels_are_not_added_up() -> None:
    measured = [PairMeasurement("a", name, (1.0,)) for name in "bc"]
    predicted = [
        PairPrediction("a", name, "auto", 1.0, lower=0.5, upper=2.0, level=level)
        for name, level in (("b", 0.8), ("c", 0.9))
    ]
    with pytest.raises(InputError, match=r"0\.8, 0\.9"):
        scored(measured, predicted)


@pytest.mark.thorough
def test_the_interval_holds_the_truth_about_as_often_as_it_says() -> None:
    """Applications whose own coverage varies around 0.9, eleven partners each."""
    rng = random.Random(5)
    hits = 0
    for _ in range(100):
        held = {}
        for k in range(12):
            own = rng.betavariate(9.0, 1.0)
            held[f"a{k}"] = [rng.random() < own for _ in range(11)]
        low, high = covered(held)["interval"]
        hits += low <= 0.9 <= high
    assert hits >= 0.9 * 100


def test_single_runs_and_medians_of_many_are_covered_apart() -> None:
    def coverage(values: tuple[float, ...]) -> dict[str, Any]:
        measured = [PairMeasurement(app, "x", values) for app in "ab"]
        predicted = [
            PairPrediction(app, "x", "auto", 1.0, 0.9, 1.1, expected=(0.95, 1.05)) for app in "ab"
        ]
        summaries: dict[str, Any] = scored(measured, predicted)["coverage"]
        return summaries

    # The mean of repeats that differ so much may well be of a median within the interval.
    noisy = coverage((0.6, 1.09, 1.6))
    assert noisy["run"]["actual"] == pytest.approx(1 / 3)
    assert noisy["expected"]["actual"] == 1.0
    exact = coverage((1.08, 1.08, 1.08))
    assert (exact["run"]["actual"], exact["expected"]["actual"]) == (1.0, 0.0)
    assert exact["expected"]["median_width_pct"] == pytest.approx(10.0)
    assert (exact["at_edge"], exact["extrapolating"]) == (0.0, 0.0)


def test_the_noise_of_two_repeats_is_taken_from_all_of_a_program() -> None:
    """Intervals that hold nine in ten true medians, of programs whose runs differ by 10 %."""
    rng = random.Random(4)
    measured, predicted = [], []
    for app, partner in itertools.permutations("abcdefghijkl", 2):
        median = rng.gauss(0.0, 0.03)
        values = [math.exp(rng.gauss(median, 0.1)) for _ in range(2)]
        measured.append(PairMeasurement(app, partner, tuple(values)))
        ends = (math.exp(-1.645 * 0.03), math.exp(1.645 * 0.03))
        predicted.append(PairPrediction(app, partner, "auto", 1.0, 0.5, 2.0, expected=ends))
    held = scored(measured, predicted)["coverage"]["expected"]["actual"]
    assert held == pytest.approx(0.9, abs=0.04)


def test_what_is_slower_than_at_least_is_held_and_what_is_faster_is_missed() -> None:
    """Predicted to be slowed at least 5 times, 4 or more in a run."""
    costs = {"above": (9.0, 9.0), "within": (4.5, 5.5), "below": (2.0, 2.0), "other": (9.0, 9.0)}
    measured = [PairMeasurement(app, name, costs[name]) for app in "ab" for name in costs]
    predicted = [
        PairPrediction(
            pair.app,
            pair.neighbour,
            "auto",
            5.0,
            4.0,
            6.0,
            expected=(4.5, 5.5),
            at_least=pair.neighbour != "other",
        )
        for pair in measured
    ]
    document = scored(measured, predicted)
    coverage = document["coverage"]
    assert coverage["at_edge"] == 0.75
    assert coverage["run"]["actual"] == coverage["expected"]["actual"] == 0.5
    assert coverage["run"]["at_least"] == {"n": 12, "above": 4, "below": 4}
    assert coverage["expected"]["at_least"] == {"n": 6, "above": 2, "below": 2}
    # More than half of the intervals have no upper end.
    assert coverage["run"]["median_width_pct"] is None
    lines = [line for line in remarks(document) if '"at least"' in line]
    assert "Of these, 12 are of predictions" in lines[0]
    assert "4 lie above the computed end, which is none, and count as held; 4 lie below" in lines[0]
    closed = scored(measured, [replace(prediction, at_least=False) for prediction in predicted])
    assert closed["coverage"]["run"]["actual"] == 0.25
    assert not [line for line in remarks(closed) if "Of these" in line]
