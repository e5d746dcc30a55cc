"""Programs that press on nothing slow nobody, however many there are: noise does not add up."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from kongming import Signature
from kongming.engine.engine import Engine
from kongming.learning import predict as library
from kongming.learning.model_file import ModelFile, read, seal
from kongming.records.questions import ColocationQuestion, Question, RankQuestion
from tests.server.core import worlds
from tests.server.core.worlds import NAMES, NOW, PRESSURE, SENSITIVITY, bound

SPREAD = 0.05
APPS = ("memory", "disk", "quiet")


def model(app: str, spread: float = SPREAD) -> ModelFile:
    """One that takes differences within the idle node's spread for noise."""
    payload = worlds.document(app, SENSITIVITY[app])
    del payload["checksum"]
    for variant in payload["variants"].values():
        variant["spread"] = dict.fromkeys(variant["columns"], spread)
    return read(seal(payload))


def idler(app: str = "idler", seed: int = 1) -> Signature:
    """What is read next to a program that does nothing."""
    noise = np.random.default_rng(seed).uniform(-SPREAD, SPREAD, len(NAMES))
    return worlds.signature(app, dict(zip(NAMES, noise.tolist(), strict=True)))


@pytest.fixture
def engine() -> Engine:
    engine = Engine()
    for app in APPS:
        engine.put_model(model(app), 1)
        engine.put_signatures([worlds.signature(app, PRESSURE[app])])
    engine.put_signatures([idler(), idler("other", 2)])
    worlds.add_node(engine)
    return engine


def next_to(engine: Engine, *neighbours: str, app: str = "memory") -> float:
    forecast = engine.predict_colocation(ColocationQuestion(app, neighbours)).prediction
    return math.log(forecast.slowdown.median)


@pytest.mark.parametrize("idle", [["idler"], ["idler"] * 16, ["idler", "other"] * 8])
def test_idle_programs_change_no_prediction_next_to_others(engine: Engine, idle: list[str]) -> None:
    assert next_to(engine, *idle) == pytest.approx(0.0, abs=0.005)
    for app, other in itertools.permutations(APPS, 2):
        alone = next_to(engine, other, app=app)
        assert next_to(engine, other, *idle, app=app) == pytest.approx(alone, abs=0.005)
        assert next_to(engine, *idle, other, app=app) == pytest.approx(alone, abs=0.005)


def test_a_single_neighbour_is_taken_as_it_was_measured(engine: Engine) -> None:
    for app, other in itertools.permutations(APPS, 2):
        company = {other: [worlds.signature(other, PRESSURE[other])]}
        expected = library.slowdown_colocated(model(app), company)
        assert next_to(engine, other, app=app) == math.log(expected.median)


def test_strong_neighbours_add_up_to_what_they_do_each(engine: Engine) -> None:
    each = [next_to(engine, other, app="disk") for other in ("disk", "memory")]
    assert each[0] > 0.3
    assert next_to(engine, "disk", "memory", app="disk") == pytest.approx(sum(each), abs=0.005)
    # A little less than without regard to noise.
    assert next_to(engine, "memory", "quiet") == pytest.approx(next_to(engine, "memory"), abs=0.005)


def on_node(engine: Engine, app: str, resident_id: str = "") -> float:
    forecast = engine.predict(Question(app, "node-1", resident_id=resident_id), NOW)
    return math.log(forecast.slowdown.median)


def test_idle_residents_slow_nobody(engine: Engine) -> None:
    engine.put_assignment(bound("strong", "memory", NOW - 5.0))
    newcomer, resident = on_node(engine, "memory"), on_node(engine, "memory", "strong")
    assert newcomer > 0.2
    for n in range(30):
        engine.put_assignment(bound(f"idle-{n}", ("idler", "other")[n % 2], NOW - 5.0))

    assert on_node(engine, "memory") == pytest.approx(newcomer, abs=0.005)
    assert on_node(engine, "memory", "strong") == pytest.approx(resident, abs=0.005)
    impact = engine.predict(Question("idler", "node-1"), NOW).residents["strong"]
    assert impact.slowdown_then.median == pytest.approx(impact.slowdown_now.median, rel=0.005)


def test_what_a_newcomer_does_to_residents_is_what_they_meet_when_it_is_there(
    engine: Engine,
) -> None:
    for assignment_id, app in (("a", "memory"), ("b", "disk"), ("c", "idler")):
        engine.put_assignment(bound(assignment_id, app, NOW - 5.0))
    impacts = engine.predict(Question("memory", "node-1"), NOW).residents
    (ranked,) = engine.rank(RankQuestion("memory", seed=1), NOW).nodes
    worst = max(impact.slowdown_then.median for impact in impacts.values())
    assert ranked.worst_resident_slowdown == pytest.approx(worst, rel=1e-5)

    engine.put_assignment(bound("d", "memory", NOW - 4.0))

    for assignment_id, app in (("a", "memory"), ("b", "disk")):
        then = math.log(impacts[assignment_id].slowdown_then.median)
        assert on_node(engine, app, assignment_id) == pytest.approx(then, abs=1e-9)


@pytest.mark.parametrize("order", list(itertools.permutations(("memory", "disk", "idler"))))
def test_the_spread_is_that_of_a_training_there_whichever_came_first(
    order: tuple[str, ...],
) -> None:
    spreads = {"memory": 0.5, "disk": 0.1}
    engine = Engine()
    worlds.add_node(engine, "trainer")
    worlds.add_node(engine)
    for name in order:
        if name == "idler":
            engine.put_signatures([worlds.signature("idler", dict.fromkeys(NAMES, 0.3))])
        else:
            engine.put_model(model(name, spreads[name]), 1)
        engine.refresh(NOW, 1.0)
    for n in range(2):
        engine.put_assignment(bound(f"idle-{n}", "idler", NOW - 5.0))

    # Of each 0.2 beyond the spread, and once what is within it; the model takes off its own.
    power = sum(SENSITIVITY["disk"].values())
    assert on_node(engine, "disk") == pytest.approx(power * (2 * 0.2 + 0.1 - 0.1), abs=1e-6)
