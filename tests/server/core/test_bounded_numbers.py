"""Whatever one node reports, the engine's answers about the others are as they would be without."""

from __future__ import annotations

import math
from collections.abc import Mapping
from contextlib import suppress

import pytest

from kongming.engine.columns import (
    MOST_COLUMNS,
    MOST_OF_ONE,
    MOST_REPORTED,
    MOST_SHARED,
    Columns,
)
from kongming.engine.engine import Engine
from kongming.records.answers import Ranking
from kongming.records.errors import KongmingError
from kongming.records.questions import Question, RankQuestion
from tests import builders
from tests.server.core import worlds
from tests.server.core.worlds import NOW, bound

HONEST = ("node-0", "node-1", "node-2")
APPS = ("memory", "disk", "unknown")


def fleet() -> Engine:
    engine = worlds.engine()
    for number, node_id in enumerate(HONEST):
        worlds.add_node(engine, node_id, {"stream.triad": 0.2 * number})
    return engine


def answers(engine: Engine) -> list[object]:
    """All that the engine says of the honest nodes."""
    collected: list[object] = [engine.node(node_id, NOW) for node_id in HONEST]
    for app in APPS:
        collected += [engine.predict(Question(app, node_id), NOW) for node_id in HONEST]
        collected += ranked(engine.rank(RankQuestion(app, seed=1, limit=100), NOW))
    return collected


def ranked(ranking: Ranking) -> list[tuple[str, float, float, float]]:
    """By node: how near ties are ordered depends on how many nodes there are."""
    return sorted(
        (node.node_id, node.score, node.slowdown.median, node.worst_resident_slowdown)
        for node in ranking.nodes
        if node.node_id in HONEST
    )


EXTREMES: dict[str, tuple[Mapping[str, float], Mapping[str, float]]] = {
    "the slowest that is plausible": (
        dict.fromkeys(worlds.NAMES, 1e-11),
        dict.fromkeys(worlds.NAMES, 3599.0),
    ),
    "the fastest": (dict.fromkeys(worlds.NAMES, 3599.0), dict.fromkeys(worlds.NAMES, 1e-11)),
    "other surrogates": ({"x": 1.0}, {"y": 1.0}),
}


@pytest.mark.parametrize(("idle", "live"), EXTREMES.values(), ids=EXTREMES)
def test_readings_of_one_node_end_no_answer_about_others(
    idle: Mapping[str, float], live: Mapping[str, float]
) -> None:
    engine = fleet()
    before = answers(engine)
    engine.put_node(builders.node(id="thief", name="thief"), NOW)
    engine.put_reference("thief", 0, idle, worlds.SUITE, by="token t")
    engine.put_fingerprint(
        "thief", 0, worlds.fingerprint(live, node_id="thief"), now=NOW, by="token t"
    )
    for number in range(30):
        # They began after the fingerprint, so that all of them are added to it.
        engine.put_assignment(bound(f"ghost-{number}", "memory", NOW - 1.0, "thief"))
    assert answers(engine) == before
    # Of the node itself there is an answer, or none, but no crash.
    for app in APPS:
        with suppress(KongmingError):
            assert engine.predict(Question(app, "thief"), NOW).slowdown.median > 0.0
    assert len(engine.nodes(NOW)) == 4
    engine.rank(RankQuestion("memory", nodes=("thief", *HONEST), seed=1), NOW)


def test_however_many_residents_there_are_a_node_stays_within_bounds() -> None:
    engine = fleet()
    before = answers(engine)
    worlds.add_node(engine, "thief", {})
    for number in range(2000):
        engine.put_assignment(bound(f"ghost-{number}", f"unknown-{number}", NOW - 1.0, "thief"))
    assert answers(engine) == before
    status = engine.node("thief", NOW)
    assert status.general_slowdown is not None
    assert math.isfinite(status.general_slowdown)
    assert math.isfinite(engine.predict(Question("memory", "thief"), NOW).slowdown.upper)


def test_one_agents_credentials_do_not_use_up_the_columns() -> None:
    engine = Engine()
    names = {f"junk-{number}": 1e-9 for number in range(1000)}
    engine.put_node(builders.node(id="thief", name="thief"), NOW)
    for start in range(0, 1000, 100):
        part = dict(list(names.items())[start : start + 100])
        engine.put_reference("thief", 0, part, f"{start}", by="token t")
    for number, node_id in enumerate(HONEST):
        engine.put_node(builders.node(id=node_id, name=node_id), NOW)
        engine.put_reference(node_id, 0, worlds.IDLE, worlds.SUITE, by=f"token {number}")
        live = worlds.fingerprint(worlds.slowed({"stream.triad": 0.2}), node_id=node_id)
        engine.put_fingerprint(node_id, 0, live, now=NOW, by=f"token {number}")
    for app, sensitivity, _ in worlds.APPS:
        engine.put_model(worlds.model(app, sensitivity), 1)
    ranking = engine.rank(RankQuestion("memory", nodes=HONEST, seed=1), NOW)
    assert {node.node_id for node in ranking.nodes} == set(HONEST)
    assert engine.node("node-0", NOW).general_slowdown == pytest.approx(
        math.exp(0.2 / len(worlds.IDLE))
    )


def test_models_have_a_place_for_their_surrogates_whatever_agents_report() -> None:
    columns = Columns()
    for pair in range(10):
        names = [f"{pair}-{number}" for number in range(100)]
        for holder in "ab":
            columns.learn(names, [""] * 100, by=f"token {pair}{holder}")
    for node in range(10):
        columns.signature({f"{node}.{number}": 1.0 for number in range(100)}, {}, f"node-{node}")
    assert len(columns) <= MOST_REPORTED + MOST_OF_ONE
    names = [f"model-{number}" for number in range(MOST_SHARED - MOST_REPORTED)]
    places = columns.learn(names, [""] * len(names))
    assert (places >= 0).all()
    # What is known already costs nobody anything.
    assert (columns.learn(names, [""] * len(names), by="token 3a") == places).all()
    assert len(columns) <= MOST_COLUMNS


def test_what_agents_name_alone_takes_no_place_of_others() -> None:
    """Each has its own number of places, whatever others named before."""
    engine = Engine()
    for number in range(4):
        thief = f"thief-{number}"
        engine.put_node(builders.node(id=thief, name=thief), NOW)
        junk = {f"{number}.{place}": 1e-9 for place in range(100)}
        engine.put_reference(thief, 0, junk, f"9-{number}", by=f"token {thief}")
    own = {f"own.{place}": 1e-6 for place in range(MOST_OF_ONE)}
    live = worlds.fingerprint({name: 2e-6 for name in own}, node_id="node-0")
    engine.put_node(builders.node(id="node-0", name="node-0"), NOW)
    engine.put_reference("node-0", 0, own, worlds.SUITE, by="token honest")
    engine.put_fingerprint("node-0", 0, live, now=NOW, by="token honest")
    assert engine.node("node-0", NOW).slowdown == pytest.approx(dict.fromkeys(own, 2.0))
    assert engine.reference("node-0") == pytest.approx(own)
    assert set(engine.node("thief-0", NOW).slowdown) <= {f"0.{place}" for place in range(100)}

    # Once another agent names them they are known to all, and what was read before stays.
    engine.put_node(builders.node(id="node-1", name="node-1"), NOW)
    few = dict(list(own.items())[:20])
    engine.put_reference("node-1", 0, few, worlds.SUITE, by="token other")
    assert engine.node("node-0", NOW).slowdown == pytest.approx(dict.fromkeys(own, 2.0))
    assert engine.reference("node-0") == pytest.approx(own)
    assert engine.reference("node-1") == pytest.approx(few)
    # A node that another agent takes over forgets what only the old one could name.
    engine.put_fingerprint("node-0", 0, live, now=NOW, by="token new")
    assert engine.reference("node-0") == pytest.approx(few)


def test_one_agent_does_not_say_of_which_resource_a_surrogate_is() -> None:
    """It decides what the cache domains of all nodes share."""
    columns = Columns()
    [alone] = columns.learn(["stream"], ["network"], by="token thief")
    columns.learn(["stream"], ["memory"], by="token a")
    assert not columns.devices().any()
    [place] = columns.learn(["stream"], ["memory"], by="token b")
    assert place != alone
    assert columns.family(int(place)) == "memory"
    columns.learn(["stream"], ["network"], by="token thief")
    assert columns.family(int(place)) == "memory"
    # What a model says takes precedence over what agents say.
    columns.learn(["stream"], ["cache"])
    assert columns.family(int(place)) == "cache"
