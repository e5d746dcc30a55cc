"""Whatever one node reports, the engine's answers about the others are as they would be without."""

from __future__ import annotations

import math
from collections.abc import Mapping
from contextlib import suppress

import pytest

from kongming.engine.columns import MOST_COLUMNS, MOST_OF_ONE, MOST_REPORTED, Columns
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
    made = worlds.engine()
    for number, node_id in enumerate(HONEST):
        worlds.add_node(made, node_id, {"stream.triad": 0.2 * number})
    return made


def answers(made: Engine) -> list[object]:
    """What is said of the honest nodes."""
    found: list[object] = [made.node(node_id, NOW) for node_id in HONEST]
    for app in APPS:
        found += [made.predict(Question(app, node_id), NOW) for node_id in HONEST]
        found += ranked(made.rank(RankQuestion(app, seed=1, limit=100), NOW))
    return found


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
    made = fleet()
    before = answers(made)
    made.put_node(builders.node(id="thief", name="thief"), NOW)
    made.put_reference("thief", 0, idle, worlds.SUITE, by="token t")
    made.put_fingerprint(
        "thief", 0, worlds.fingerprint(live, node_id="thief"), now=NOW, by="token t"
    )
    for number in range(30):
        # They began after the fingerprint, so that all of them are added to it.
        made.put_assignment(bound(f"ghost-{number}", "memory", NOW - 1.0, "thief"))
    assert answers(made) == before
    # Of the node itself there is an answer, or none, but no crash.
    for app in APPS:
        with suppress(KongmingError):
            assert made.predict(Question(app, "thief"), NOW).slowdown.median > 0.0
    assert len(made.nodes(NOW)) == 4
    made.rank(RankQuestion("memory", nodes=("thief", *HONEST), seed=1), NOW)


def test_however_many_residents_there_are_a_node_stays_within_bounds() -> None:
    made = fleet()
    before = answers(made)
    worlds.add_node(made, "thief", {})
    for number in range(2000):
        made.put_assignment(bound(f"ghost-{number}", f"unknown-{number}", NOW - 1.0, "thief"))
    assert answers(made) == before
    status = made.node("thief", NOW)
    assert status.general_slowdown is not None
    assert math.isfinite(status.general_slowdown)
    assert math.isfinite(made.predict(Question("memory", "thief"), NOW).slowdown.upper)


def test_one_agents_credentials_do_not_use_up_the_columns() -> None:
    made = Engine()
    names = {f"junk-{number}": 1e-9 for number in range(1000)}
    made.put_node(builders.node(id="thief", name="thief"), NOW)
    for start in range(0, 1000, 100):
        part = dict(list(names.items())[start : start + 100])
        made.put_reference("thief", 0, part, f"{start}", by="token t")
    for number, node_id in enumerate(HONEST):
        made.put_node(builders.node(id=node_id, name=node_id), NOW)
        made.put_reference(node_id, 0, worlds.IDLE, worlds.SUITE, by=f"token {number}")
        live = worlds.fingerprint(worlds.slowed({"stream.triad": 0.2}), node_id=node_id)
        made.put_fingerprint(node_id, 0, live, now=NOW, by=f"token {number}")
    for app, sensitivity, _ in worlds.APPS:
        made.put_model(worlds.model(app, sensitivity), 1)
    ranking = made.rank(RankQuestion("memory", nodes=HONEST, seed=1), NOW)
    assert {node.node_id for node in ranking.nodes} == set(HONEST)
    assert made.node("node-0", NOW).general_slowdown == pytest.approx(
        math.exp(0.2 / len(worlds.IDLE))
    )


def test_models_have_a_place_for_their_surrogates_whatever_agents_report() -> None:
    columns = Columns()
    for holder in range(10):
        names = [f"{holder}-{number}" for number in range(100)]
        places = columns.learn(names, [""] * 100, by=f"token {holder}")
        assert (places >= 0).sum() <= MOST_OF_ONE
    assert len(columns) == MOST_REPORTED
    names = [f"model-{number}" for number in range(MOST_COLUMNS - MOST_REPORTED)]
    assert (columns.learn(names, [""] * len(names)) >= 0).all()
    # What is known already costs nobody anything.
    assert (columns.learn(names, [""] * len(names), by="token 3") >= 0).all()
