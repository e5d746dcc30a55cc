"""Beyond what was trained on, a prediction stays at the edge and says "at least"."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kongming.learning import model_file, predict, spaces
from kongming.learning.scorer import Scorer, scorer_of
from kongming.learning.training import train_application
from tests.models import synthetic

NAMES = ("RIDGE", "GP", "STACK")
ENVIRONMENTS = st.lists(st.floats(-1.0, 12.0), min_size=15, max_size=15)
"""Logs of readings over idle ones."""


@pytest.fixture(scope="module")
def file() -> model_file.ModelFile:
    runs = synthetic.campaign("chaser", {"memory.random.128M": 0.7, "stream.triad": 0.2})
    return model_file.read(train_application(runs, models=("STACK",), quick_columns=()))


def scorer(file: model_file.ModelFile, name: str) -> Scorer:
    return scorer_of(file.variants["full"], name)


@pytest.mark.thorough
@settings(deadline=None)
@given(st.sampled_from(NAMES), ENVIRONMENTS)
def test_no_environment_slows_a_program_more_than_its_slowest_resource(
    file: model_file.ModelFile, name: str, logs: list[float]
) -> None:
    own_scorer = scorer(file, name)
    row = own_scorer.log_idle + np.array(logs)
    scores = own_scorer.score(row[None, :], np.zeros(1))
    limit = max(
        own_scorer.frozen.worst,
        *(np.minimum(row, own_scorer.log_edge) - own_scorer.log_idle).tolist(),
    )
    assert scores.limit[0] == pytest.approx(limit)
    assert scores.log_slowdown[0] <= limit + 1e-12
    predicted = own_scorer.interval(
        float(scores.log_slowdown[0]), float(scores.error[0]), 0.9, limit=limit, at_least=True
    )
    assert predicted.lower <= predicted.median <= predicted.upper
    assert math.log(predicted.upper) <= limit + 5.0 * own_scorer.variant.noise
    farther = own_scorer.score(np.maximum(row, own_scorer.log_edge)[None, :] + 1.0, np.zeros(1))
    edge = own_scorer.score(np.maximum(row, own_scorer.log_edge)[None, :], np.zeros(1))
    assert farther.log_slowdown[0] == edge.log_slowdown[0]


def test_a_reading_beyond_the_edge_is_said_to_be_at_least_so_slow(
    file: model_file.ModelFile,
) -> None:
    variant = file.variants["full"]
    high = dict(zip(variant.columns, variant.high.tolist(), strict=True))
    inside = predict.predict_environment(file, high)
    assert not inside.slowdown.at_least
    beyond = high | {"memory.random.128M": 50.0 * high["memory.random.128M"]}
    prediction = predict.predict_environment(file, beyond)
    assert prediction.slowdown.at_least
    assert prediction.extrapolating
    assert any(
        "edge of the training runs: it may be larger" in sentence
        for sentence in prediction.warnings
    )
    assert prediction.runtime_s.at_least
    assert inside.slowdown.median <= prediction.slowdown.median < 3.0


@settings(deadline=None)
@given(st.sampled_from(NAMES), ENVIRONMENTS)
def test_no_program_is_said_to_be_slowed_much_more_than_in_its_worst_training_run(
    file: model_file.ModelFile, name: str, logs: list[float]
) -> None:
    own_scorer = scorer(file, name)
    scores = own_scorer.score((own_scorer.log_idle + np.array(logs))[None, :], np.zeros(1))
    worst = own_scorer.frozen.worst
    assert scores.log_slowdown[0] <= worst + spaces.CEILING + 1e-12
    if scores.log_slowdown[0] >= worst + spaces.CEILING:
        assert scores.at_least[0]


def test_a_document_without_its_worst_run_is_held_to_the_same_bound(
    file: model_file.ModelFile,
) -> None:
    runs = synthetic.campaign("chaser", {"memory.random.128M": 0.7, "stream.triad": 0.2})
    document = train_application(runs, models=("RIDGE",), quick_columns=())
    for variant in document["variants"].values():
        for model in variant["models"].values():
            model["bounds"][1] = model.pop("worst") + math.log(10.0)
    del document["checksum"]
    former = model_file.read(model_file.seal(document)).variants["full"].models["RIDGE"]
    now = file.variants["full"].models["RIDGE"]
    assert former.worst == pytest.approx(now.worst)
    assert former.bounds == pytest.approx(now.bounds)


def test_what_the_model_does_not_use_makes_nothing_at_least(file: model_file.ModelFile) -> None:
    own_scorer = scorer(file, "RIDGE")
    unused = int(np.argmin(own_scorer.frozen.weights))
    row = own_scorer.log_high.copy()
    row[unused] += 5.0
    assert not own_scorer.score(row[None, :], np.zeros(1)).at_least[0]
