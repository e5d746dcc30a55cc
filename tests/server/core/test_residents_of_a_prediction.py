"""What a prediction says of the residents of its node: as much, and as surely, as is known."""

from __future__ import annotations

import math
from typing import Any

import pytest

from kongming.engine.engine import Engine
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
