"""Intervals are widened by co-runs that were compared with the very model."""

from __future__ import annotations

import pytest

from kongming.engine.engine import Engine
from kongming.learning.intervals import Widening
from kongming.learning.model_file import ModelFile, read, seal
from kongming.records.prediction import Interval
from kongming.records.questions import ColocationQuestion, Question
from tests.server.core import worlds
from tests.server.core.worlds import NOW, SENSITIVITY

NARROWED = Widening(0.5, 12, 30, expected=0.5)


def two_models() -> ModelFile:
    """A file whose chosen model is LM, and that has the same law under another name too."""
    payload = worlds.document("memory", SENSITIVITY["memory"])
    del payload["checksum"]
    for variant in payload["variants"].values():
        variant["models"]["NNLS"] = variant["models"]["LM"]
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
