"""What is said on nodes of another type than the one that a program was profiled on: its slowdown
there, and no calibrated runtime."""

from __future__ import annotations

import pytest

from kongming.engine.engine import Engine
from kongming.records.answers import Forecast
from kongming.records.questions import ColocationQuestion, Question, RankQuestion
from tests import builders
from tests.server.core import worlds
from tests.server.core.worlds import IDLE, NOW

TWICE = {name: 2.0 * seconds for name, seconds in IDLE.items()}
OTHERS = ({"cpu_model": "another"}, {"llc_bytes": 1 << 20}, {"l2_bytes": 1 << 18})


@pytest.fixture
def engine() -> Engine:
    """The node of the training is known, and idle."""
    engine = worlds.engine()
    worlds.add_node(engine, "trainer", {})
    return engine


def ask(engine: Engine) -> Forecast:
    return engine.predict(Question("memory", "node-1"), NOW)


def flags(forecast: Forecast) -> tuple[bool, bool]:
    """Whether the slowdown and the runtime are calibrated."""
    assert forecast.runtime_s is not None
    return forecast.slowdown.calibrated, forecast.runtime_s.calibrated


@pytest.mark.parametrize("facts", OTHERS)
def test_on_another_type_the_slowdown_is_calibrated_and_the_runtime_is_not(
    engine: Engine, facts: dict[str, object]
) -> None:
    worlds.add_node(engine, logs={}, idle=TWICE, **facts)

    forecast = ask(engine)

    assert flags(forecast) == (True, False)
    (warning,) = forecast.warnings
    assert warning.startswith("name-node-1 has another CPU model or other caches than")
    assert all(n.slowdown.calibrated for n in engine.rank(RankQuestion("memory"), NOW).nodes)
    explained = engine.explain(Question("memory", "node-1"), NOW)
    assert explained.prediction == forecast


@pytest.mark.parametrize("node", ["trainer", "node-1"])
def test_on_the_same_type_both_are(engine: Engine, node: str) -> None:
    worlds.add_node(engine, logs={}, idle=TWICE)

    forecast = engine.predict(Question("memory", node), NOW)

    assert flags(forecast) == (True, True)
    assert forecast.warnings == ()


def test_a_type_that_is_not_known_is_not_taken_to_be_the_same() -> None:
    engine = worlds.engine()
    worlds.add_node(engine, logs={})

    before = ask(engine)
    engine.put_node(builders.node(id="trainer", name="trainer"))
    after = ask(engine)

    assert flags(before) == (True, False)
    assert any("not known whether name-node-1 has the CPU model" in w for w in before.warnings)
    assert flags(after) == (True, True)


@pytest.mark.parametrize("live", [None, 0])
def test_next_to_others_it_is_the_same(engine: Engine, live: int | None) -> None:
    worlds.add_node(engine, logs={}, idle=TWICE, cpu_model="another")
    worlds.add_node(engine, "like", logs={}, idle=TWICE)

    for node, expected in (("node-1", (True, False)), ("like", (True, True))):
        question = ColocationQuestion("memory", ("disk",), node=node)
        answer = engine.predict_colocation(question, live)
        assert flags(answer.prediction) == expected
        assert len(answer.prediction.warnings) == (0 if all(expected) else 1)
        (neighbour,) = answer.neighbours
        assert neighbour.slowdown is not None
        assert neighbour.slowdown.calibrated


@pytest.mark.parametrize("facts", [{}, {"cpu_model": "another"}])
def test_next_to_others_on_an_idle_node_without_a_reference_nothing_is_calibrated(
    engine: Engine, facts: dict[str, object]
) -> None:
    worlds.add_node(engine, logs={}, idle=TWICE, reference=False, **facts)
    question = ColocationQuestion("memory", ("disk",), node="node-1")

    answer = engine.predict_colocation(question)

    assert flags(answer.prediction) == (False, False)
    assert any("the intervals are not calibrated" in w for w in answer.prediction.warnings)
    (neighbour,) = answer.neighbours
    assert neighbour.slowdown is not None
    assert not neighbour.slowdown.calibrated
    at_home = ColocationQuestion("memory", ("disk",), node="trainer")
    assert flags(engine.predict_colocation(at_home).prediction) == (True, True)
