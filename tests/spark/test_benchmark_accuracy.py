"""The benchmark's figures over several programs: a bad pair of sizes shows."""

from __future__ import annotations

import math

import pytest

from benchmarks.spark.accuracy import Scores, together
from kongming.spark.evaluation import Evaluation, Pair


def _scores(*errors: tuple[int, int, float, float]) -> Scores:
    """A program of which the replay and constant lengths are that far off, by pair of sizes."""
    pairs = tuple(
        Pair(
            (recorded, 1),
            (target, 1),
            100.0,
            90.0,
            110.0,
            {
                "replay": 100.0 * (1.0 + replay),
                "constant_durations": 100.0 * (1.0 - constant),
                "ernest": 115.0,
            },
        )
        for recorded, target, replay, constant in errors
    )
    evaluation = Evaluation("program", ((1, 1), (2, 1)), pairs, {}, None, (0.01, 0.03))
    return Scores(evaluation, None, (), (0.0, 2.0))


def test_ratios_are_of_each_program_s_own_pairs() -> None:
    """Pooled by sizes both pairs would be 0.2 for 0.4."""
    scores = {
        "good": _scores((1, 2, 0.1, 0.4), (2, 1, 0.1, 0.4)),
        "bad": _scores((1, 2, 0.3, 0.1), (2, 1, 0.05, 0.4)),
    }
    figures = together(scores)
    assert figures["program_pairs"] == 4
    assert figures["pairs_above_1.05"] == {"good": {}, "bad": {"1 to 2": pytest.approx(3.0)}}
    assert figures["error_over_constant"]["worst"] == pytest.approx(3.0)
    assert figures["error_over_constant"]["geometric_mean"] == pytest.approx(
        math.pow(0.25 * 0.25 * 3.0 * 0.125, 0.25)
    )
    assert figures["programs_worse_than_ernest"] == ["bad"]
    assert figures["self_check_pct"] == {"median": pytest.approx(2.0), "worst": pytest.approx(3.0)}
    assert figures["recommended_over_best_pct"] == 2.0
    by_pair = scores["bad"].document()["error_over_constant_by_pair"]
    assert by_pair == {"1 to 2": pytest.approx(3.0), "2 to 1": pytest.approx(0.125)}
