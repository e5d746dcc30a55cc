"""Intervals that rest on the pressure of a program whose signature is not known: not calibrated."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kongming.engine.engine import Engine
from kongming.records.answers import Forecast
from kongming.records.questions import Question, RankQuestion
from kongming.records.resident import Resident
from tests.server.core import worlds
from tests.server.core.worlds import NOW, bound, released

WITHIN = bound("x", "stranger", NOW - 100.0)
ADDED = bound("x", "stranger", NOW - 5.0)
REMOVED = released(WITHIN, NOW - 2.0)


def engine_with(*residents: Resident) -> Engine:
    """One node, that of the training, read 10 s ago."""
    engine = worlds.engine()
    worlds.add_node(engine, "trainer", {"stream.triad": 0.3})
    for resident in residents:
        engine.put_assignment(replace(resident, node_id="trainer"))
    return engine


def ask(engine: Engine, app: str = "disk", **changes: str) -> Forecast:
    return engine.predict(Question(app, "trainer", **changes), NOW)


def is_said(forecast: Forecast) -> bool:
    return any("No signature of" in text for text in forecast.warnings)


@pytest.mark.parametrize("resident", [ADDED, REMOVED, WITHIN])
def test_of_a_newcomer_where_a_resident_was_added_or_taken_out(resident: Resident) -> None:
    engine = engine_with(resident)

    forecast = ask(engine)

    is_calibrated = resident is WITHIN
    assert forecast.slowdown.calibrated is is_calibrated
    assert forecast.runtime_s is not None
    assert forecast.runtime_s.calibrated is is_calibrated
    assert is_said(forecast) is not is_calibrated
    (ranked,) = engine.rank(RankQuestion("disk"), NOW).nodes
    assert ranked.slowdown.calibrated is is_calibrated


@pytest.mark.parametrize("resident", [ADDED, REMOVED, WITHIN])
def test_of_residents_next_to_it(resident: Resident) -> None:
    engine = engine_with(resident, bound("m", "memory", NOW - 100.0))

    impact = ask(engine).residents["m"]
    own = ask(engine, "memory", resident_id="m")

    assert impact.slowdown_now.calibrated is (resident is WITHIN)
    assert impact.slowdown_then.calibrated is (resident is WITHIN)
    assert own.slowdown.calibrated is (resident is WITHIN)


def test_of_a_newcomer_without_a_signature_itself() -> None:
    """It does not feel its own pressure; residents do, once it is there."""
    engine = engine_with(bound("m", "memory", NOW - 100.0))
    engine.put_model(worlds.model("bare", {"stream.triad": 0.2}), 1)

    forecast = ask(engine, "bare")

    assert forecast.slowdown.calibrated
    impact = forecast.residents["m"]
    assert impact.slowdown_now.calibrated
    assert not impact.slowdown_then.calibrated
    assert is_said(forecast)


@pytest.mark.parametrize(("began_s", "is_calibrated"), [(100.0, False), (5.0, True)])
def test_of_a_resident_whose_own_is_taken_out(began_s: float, is_calibrated: bool) -> None:
    engine = engine_with(bound("b", "bare", NOW - began_s))
    engine.put_model(worlds.model("bare", {"stream.triad": 0.2}), 1)

    own = ask(engine, "bare", resident_id="b")

    assert own.slowdown.calibrated is is_calibrated
    assert is_said(own) is not is_calibrated
    impact = ask(engine).residents["b"]
    assert impact.slowdown_now.calibrated is is_calibrated
    assert impact.slowdown_then.calibrated is is_calibrated
