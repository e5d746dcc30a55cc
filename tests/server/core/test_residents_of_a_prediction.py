"""What a prediction says of the residents of its node: as much, and as surely, as is known."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from kongming.arrays import Floats
from kongming.engine import forecast_parts, scoring
from kongming.engine.columns import Columns
from kongming.engine.engine import Engine
from kongming.engine.forecast_parts import Met
from kongming.engine.scoring import Served
from kongming.records.answers import Forecast
from kongming.records.prediction import Interval
from kongming.records.questions import Question
from tests import builders
from tests.server.core import worlds
from tests.server.core.worlds import IDLE, NOW, bound


@pytest.fixture
def engine() -> Engine:
    """Three models, and a resident that came after every fingerprint."""
    engine = worlds.engine()
    engine.put_assignment(bound("a", "memory", NOW - 5.0))
    return engine


def ask(engine: Engine, app: str = "disk", **changes: Any) -> Forecast:
    return engine.predict(Question(app, "node-1", **changes), NOW)


def width(interval: Interval) -> float:
    return math.log(interval.upper / interval.lower)


def both(forecast: Forecast) -> tuple[Interval, Interval]:
    impact = forecast.residents["a"]
    return impact.slowdown_now, impact.slowdown_then


def test_times_of_a_node_without_a_reference_say_nothing_of_a_resident(engine: Engine) -> None:
    """It is half as fast as the node of the training, and idle."""
    worlds.add_node(engine, reference=False)
    twice = worlds.slowed({}, {name: 2.0 * seconds for name, seconds in IDLE.items()})
    for ago in (20.0, 10.0):
        read = worlds.fingerprint(twice, NOW - ago)
        engine.put_fingerprint("node-1", 0, read, now=NOW)

    assert ask(engine).basis == "node-only"
    assert ask(engine).residents == {}


def test_readings_of_another_suite_say_nothing_of_a_resident(engine: Engine) -> None:
    worlds.add_node(engine, reference=False)
    engine.put_reference("node-1", 0, IDLE, "2-89abcdef")
    read = builders.fingerprint(
        worlds.slowed({"stream.triad": 0.4}),
        node=builders.node(id="node-1", name="name-node-1"),
        started_at=worlds.iso(NOW - 10.0),
        suite_version="2-89abcdef",
    )
    engine.put_fingerprint("node-1", 0, read, now=NOW)

    assert ask(engine, "stranger").residents == {}


@pytest.mark.parametrize("policy", ["widen", "history"])
def test_a_stale_reading_leaves_no_resident_calibrated(policy: Any) -> None:
    answers = {}
    for taken_at in (NOW - 10.0, NOW - 2000.0):
        engine = worlds.engine()
        engine.put_assignment(bound("a", "memory", NOW - 5.0))
        worlds.add_node(engine, logs={"stream.triad": 0.4}, taken_at=taken_at)
        for n in range(3):
            earlier = worlds.fingerprint(worlds.slowed({"stream.triad": 0.4}), taken_at - 60.0 - n)
            engine.put_fingerprint("node-1", 0, earlier, now=NOW)
        answers[taken_at] = both(ask(engine, stale_policy=policy))
    fresh, stale = answers.values()

    for young, old in zip(fresh, stale, strict=True):
        assert young.calibrated
        assert not old.calibrated
        assert old.median == pytest.approx(young.median, rel=1e-5)
        if policy == "widen":
            assert width(old) > 1.1 * width(young)


def test_the_reference_of_a_like_node_leaves_no_resident_calibrated(engine: Engine) -> None:
    worlds.add_node(engine, "like", logs={})
    worlds.add_node(engine, logs={"stream.triad": 0.4}, reference=False)

    assert not any(interval.calibrated for interval in both(ask(engine)))


def test_a_newcomer_without_a_signature_presses_as_a_typical_one_with_a_word(
    engine: Engine,
) -> None:
    worlds.add_node(engine, logs={})

    unknown, known = ask(engine, "stranger"), ask(engine, "disk")

    assert unknown.residents["a"].slowdown_then.median > 1.0
    assert any("stranger" in text and "typical" in text for text in unknown.warnings)
    assert not any("typical" in text for text in known.warnings)


def test_many_residents_of_a_stale_reading_are_widened_together(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each as it would be by itself, and each model is asked once."""
    engine = worlds.engine()
    worlds.add_node(engine, logs={"stream.triad": 0.2}, taken_at=NOW - 2000.0)
    apps = {f"{app}-{n}": app for app in ("memory", "quiet") for n in range(20)}
    for name, app in apps.items():
        # Within the fingerprint, so that the loads stay within those of the training.
        engine.put_assignment(bound(name, app, NOW - 3000.0))
    question = Question("disk", "node-1")
    first = engine.predict(question, NOW)
    calls: list[int] = []
    score = scoring.score

    def counted(model: Served, absolute: Floats, *arguments: Any) -> scoring.MatrixScores:
        calls.append(len(absolute))
        return score(model, absolute, *arguments)

    monkeypatch.setattr(scoring, "score", counted)

    again = engine.predict(question, NOW)

    assert again == first
    assert sorted(again.residents) == sorted(apps)
    assert calls == [3, 120, 120]


def test_environments_that_move_together_move_as_each_does() -> None:
    file = worlds.model("memory", worlds.SENSITIVITY["memory"])
    model = scoring.served(0, file, 1, 0, Columns())
    idle = np.log(list(IDLE.values()))
    places = [
        Met(idle + shift, idle, carried, awake)
        for shift in (0.0, 0.4)
        for carried in (True, False)
        for awake in (math.nan, 0.5)
    ]

    together = forecast_parts.moved(model, places, 0.3)

    assert len(together) == len(places)
    for met, moves in zip(places, together, strict=True):
        assert moves == pytest.approx(forecast_parts.moved(model, [met], 0.3)[0])
        assert max(moves) > 0.0
