"""Intervals are widened by co-runs that were compared with the very model."""

from __future__ import annotations

import pytest

from kongming.engine.engine import Engine
from kongming.learning.intervals import Widening
from kongming.learning.model_file import ModelFile, read, seal
from kongming.records.answers import Forecast
from kongming.records.prediction import Interval
from kongming.records.questions import ColocationQuestion, Question
from tests.server.core import worlds
from tests.server.core.worlds import NOW, SENSITIVITY

NARROWED = Widening(0.5, 12, 30, expected=0.5)


def two_models(quick: str = "LM") -> ModelFile:
    """A file whose chosen model is LM, and that of the quick columns ``quick``: NNLS has the same
    law under another name."""
    payload = worlds.document("memory", SENSITIVITY["memory"])
    del payload["checksum"]
    for variant in payload["variants"].values():
        variant["models"]["NNLS"] = variant["models"]["LM"]
    payload["variants"]["quick"]["chosen"] = quick
    return read(seal(payload))


@pytest.fixture
def engine() -> Engine:
    engine = worlds.engine()
    engine.put_model(two_models(), 2)
    worlds.add_node(engine, logs={"stream.triad": 0.4})
    return engine


@pytest.mark.parametrize("asked_for", ["node", "neighbours", "copies"])
def test_only_the_chosen_model_has_the_factor_that_co_runs_ask_for(
    engine: Engine, asked_for: str
) -> None:
    def slowdown(model: str | None) -> tuple[Interval, tuple[str, ...]]:
        if asked_for == "node":
            forecast = engine.predict(Question("memory", "node-1", model=model), NOW)
        else:
            others = ("quiet",) * (1 if asked_for == "neighbours" else 2)
            question = ColocationQuestion("memory", others, model=model)
            forecast = engine.predict_colocation(question).prediction
        return forecast.slowdown, forecast.notes

    plain, _ = slowdown(None)
    engine.put_widening("memory", "cross-core", NARROWED)
    chosen, notes = slowdown(None)
    by_name, _ = slowdown("LM")
    other, its_notes = slowdown("NNLS")

    assert chosen.upper < plain.upper
    assert any("narrowed" in note for note in notes)
    assert by_name == chosen
    assert other == plain
    assert not any("narrowed" in note for note in its_notes)


def test_another_version_has_no_factor_that_was_learned_from_the_one_in_service(
    engine: Engine,
) -> None:
    def older() -> Forecast:
        return engine.predict(Question("memory", "node-1", model_version=1), NOW)

    plain = older()
    engine.put_widening("memory", "cross-core", NARROWED)

    assert older().slowdown == plain.slowdown
    assert not any("narrowed" in note for note in older().notes)
    engine.promote("memory", "cross-core", 1)
    assert older().slowdown.upper < plain.slowdown.upper


def test_a_name_is_that_of_the_chosen_model_whatever_the_quick_columns_chose(
    engine: Engine,
) -> None:
    engine.put_model(two_models(quick="NNLS"), 3)
    engine.put_widening("memory", "cross-core", NARROWED)

    def forecast(model: str | None) -> Forecast:
        return engine.predict(Question("memory", "node-1", model=model), NOW)

    assert forecast("LM").slowdown == forecast(None).slowdown
    assert any("narrowed" in note for note in forecast("LM").notes)
    assert not any("narrowed" in note for note in forecast("NNLS").notes)
