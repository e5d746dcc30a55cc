"""A ranking's numbers are those of a prediction on each node."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kongming.learning import extrapolation
from kongming.learning.intervals import Widening
from kongming.learning.predict import predict_environment
from kongming.learning.scorer import scorer_of
from kongming.records.answers import Forecast
from kongming.records.prediction import Interval
from kongming.records.questions import Question, RankQuestion
from tests.server.core import worlds
from tests.server.core.worlds import IDLE, NAMES, NOW, QUICK, bound

LOADS = st.dictionaries(st.sampled_from(NAMES), st.floats(-0.5, 3.0), max_size=5)
AGES_S = st.sampled_from((5.0, 170.0, 900.0, 2 * 86400.0))
READ = st.sampled_from((NAMES, QUICK, NAMES[1:], NAMES[3:]))
NODES = st.lists(st.tuples(LOADS, AGES_S, READ, st.booleans()), min_size=1, max_size=6)


def same(ours: Interval, theirs: Interval) -> None:
    for name in ("median", "lower", "upper"):
        # The ranking's are kept in single precision.
        assert getattr(ours, name) == pytest.approx(getattr(theirs, name), rel=1e-5), name
    assert (ours.level, ours.calibrated) == (theirs.level, theirs.calibrated)
    assert (ours.calibrated_by, ours.calibrated_groups) == (
        theirs.calibrated_by,
        theirs.calibrated_groups,
    )


@settings(deadline=None, max_examples=40)
@given(
    nodes=NODES,
    app=st.sampled_from(("memory", "disk", "stranger")),
    level=st.sampled_from((0.5, 0.9)),
    stale=st.sampled_from(("widen", "history")),
    residents=st.lists(st.sampled_from(("memory", "disk", "stranger")), max_size=3),
    widening=st.sampled_from((1.0, 1.7)),
)
def test_a_ranking_says_of_each_node_what_a_prediction_says(
    nodes: list[Any], app: str, level: float, stale: Any, residents: list[str], widening: float
) -> None:
    engine = worlds.engine()
    engine.put_widening(app, "cross-core", Widening(widening, 12, 30))
    for number, (logs, age_s, names, reference) in enumerate(nodes):
        worlds.add_node(
            engine, f"node-{number}", logs, taken_at=NOW - age_s, names=names, reference=reference
        )
        for index, resident in enumerate(residents):
            began = NOW - (1.0 if index else 1e6)
            engine.put_assignment(bound(f"{number}-{index}", resident, began, f"node-{number}"))

    question = RankQuestion(app, limit=len(nodes), level=level, stale_policy=stale)
    ranking = engine.rank(question, NOW)

    for ranked in ranking.nodes:
        predicted: Forecast = engine.predict(
            Question(app, ranked.node_id, level=level, stale_policy=stale), NOW
        )
        same(ranked.slowdown, predicted.slowdown)
        for name in ("domain", "fingerprint_age_s", "stale", "extrapolating"):
            assert getattr(ranked, name) == getattr(predicted, name), name
    assert len(ranking.nodes) + sum(ranking.refused.values()) == len(nodes)


@settings(deadline=None, max_examples=100)
@given(st.lists(st.lists(st.floats(-2.0, 4.0), min_size=7, max_size=7), min_size=1, max_size=5))
def test_many_rows_are_scored_as_each_alone(logs: list[list[float]]) -> None:
    file = worlds.model("app", {"stream.triad": 0.5, "os.switch": 0.2})
    scorer = scorer_of(file.variants["full"])
    rows = scorer.log_idle + np.array(logs)

    scores = scorer.score(rows, np.full(len(rows), np.nan))

    for i, row in enumerate(rows):
        prediction = predict_environment(file, dict(zip(NAMES, np.exp(row).tolist(), strict=True)))
        interval = scorer.interval(scores.log_slowdown[i], scores.error[i], 0.9)
        assert interval.median == pytest.approx(prediction.slowdown.median, rel=1e-12)
        assert interval.upper == pytest.approx(prediction.slowdown.upper, rel=1e-12)
        assert bool(scores.outside[i]) is prediction.extrapolating


def test_missing_readings_are_filled_by_their_family() -> None:
    scorer = scorer_of(worlds.model("app", {"stream.triad": 0.5}).variants["full"])
    families = np.array(scorer.variant.families)
    used, unused = NAMES.index("stream.triad"), NAMES.index("memory.random.128M")
    slowed = np.where(families == families[used], 0.4, 0.1)
    rows = np.tile(np.log([IDLE[name] for name in NAMES]) + slowed, (4, 1))
    rows[1, used] = math.nan
    rows[2, unused] = math.nan
    rows[3, :3] = math.nan

    complete, filled = scorer.fill(rows)

    assert complete.tolist() == [True, True, True, False]
    assert filled.tolist() == [False, True, False, False]
    assert rows[1] == pytest.approx(rows[0])
    assert rows[2] == pytest.approx(rows[0])
    assert np.isnan(rows[3]).sum() == 3


def test_of_a_family_without_any_reading_nothing_is_filled_that_the_model_uses() -> None:
    scorer = scorer_of(worlds.model("app", {"os.switch": 0.5}).variants["full"])
    rows = np.tile(np.log([IDLE[name] for name in NAMES]) + 0.4, (2, 1))
    for row, name in zip(rows, ("os.switch", "compute.int"), strict=True):
        row[NAMES.index(name)] = math.nan

    complete, filled = scorer.fill(rows)

    assert complete.tolist() == [False, True]
    assert filled.tolist() == [False, False]
    assert math.isnan(rows[0, NAMES.index("os.switch")])
    idle = IDLE["compute.int"]
    assert rows[1, NAMES.index("compute.int")] == pytest.approx(math.log(idle))


@settings(deadline=None, max_examples=50)
@given(
    st.lists(
        st.tuples(st.floats(-1.0, 3.0), st.sets(st.sampled_from(NAMES), max_size=2)),
        min_size=1,
        max_size=8,
    )
)
def test_many_rows_are_filled_as_each_alone(nodes: list[tuple[float, set[str]]]) -> None:
    scorer = scorer_of(worlds.model("app", {"stream.triad": 0.5}).variants["full"])
    rows = np.tile(scorer.log_idle, (len(nodes), 1))
    for row, (load, lacking) in zip(rows, nodes, strict=True):
        row += load * np.arange(len(NAMES))
        row[[NAMES.index(name) for name in lacking]] = math.nan
    alone = [row[None, :].copy() for row in rows]

    complete, filled = scorer.fill(rows)

    for i, row in enumerate(alone):
        its_complete, its_filled = scorer.fill(row)
        assert np.array_equal(row[0], rows[i], equal_nan=True)
        assert (complete[i], filled[i]) == (its_complete[0], its_filled[0])


def test_margins_are_those_of_the_distance() -> None:
    variant = worlds.model("app", {"stream.triad": 0.5}).variants["full"]
    scorer = scorer_of(variant)
    for j in range(len(NAMES)):
        row = scorer.log_high.copy()
        row[j] += 1.5 * scorer.margins[j]
        far = extrapolation.distance(
            np.exp(row),
            low=variant.low,
            high=variant.high,
            spread=variant.spread,
            weights=scorer.frozen.weights,
        )
        assert far.value == pytest.approx(1.5)
        assert far == replace(scorer.distance(row), value=far.value)
