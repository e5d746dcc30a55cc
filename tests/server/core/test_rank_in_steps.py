"""A ranking in steps: other calls have their turn, and what they change makes no answer wrong."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from typing import Any, TypeVar

import pytest
from kongming_server.running import pauses
from kongming_server.services.predictor import PredictorService, ranking_message

from kongming.engine.engine import Engine
from kongming.records.answers import Ranking
from kongming.records.questions import Question, RankQuestion
from kongming.records.scaling import Scaling
from kongming.rpc.message_codec import to_message
from kongming.rpc.v1 import predictor_pb2
from kongming.scale.fit.model_file import read
from kongming.steps import Steps, finish
from tests.server.core import worlds
from tests.server.core.worlds import NOW, bound, expected, released
from tests.service_contract.conftest import scale_document

Answer = TypeVar("Answer")

MANY = 300
ALL = RankQuestion("memory", limit=MANY, seed=1)
SET = RankQuestion("memory", limit=3, seed=1, scaling=Scaling(64))


@pytest.fixture
def engine() -> Engine:
    """Nodes that are slowed more and more, each with a resident."""
    engine = worlds.engine()
    for n in range(MANY):
        worlds.add_node(engine, f"node-{n:03}", {"stream.triad": n / MANY})
        engine.put_assignment(bound(f"r{n}", "disk", NOW - 100.0, f"node-{n:03}"))
    return engine


def in_pauses(
    engine: Engine, question: RankQuestion, change: Callable[[int], object]
) -> tuple[Ranking, int]:
    """The answer, and how many pauses there were; ``change`` is called in each."""
    return driven(engine.rank_in_steps(question, NOW), change)


def driven(
    steps: Steps[Answer], change: Callable[[int], object] = lambda pause: None
) -> tuple[Answer, int]:
    pauses = 0
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value, pauses
        change(pauses)
        pauses += 1


@pytest.mark.parametrize("question", [ALL, SET])
def test_the_answer_is_the_same_in_steps(engine: Engine, question: RankQuestion) -> None:
    at_once = engine.rank(question, NOW)
    in_steps, pauses = in_pauses(engine, question, lambda _: None)

    assert in_steps == at_once
    assert len(at_once.nodes) == (MANY if question is ALL else 64)
    assert pauses >= 3


@pytest.mark.parametrize("question", [ALL, SET])
@pytest.mark.parametrize("when", [0, 1, 3])
def test_a_node_that_goes_meanwhile_is_in_no_answer(
    engine: Engine, question: RankQuestion, when: int
) -> None:
    def drop_the_best(pause: int) -> None:
        if pause == when:
            engine.drop_node("node-000")
            # Another one takes its place in the engine's arrays.
            worlds.add_node(engine, "late", {"stream.triad": 5.0})

    answer, _ = in_pauses(engine, question, drop_the_best)

    assert "node-000" not in [node.node_id for node in answer.nodes]
    assert answer == engine.rank(question, NOW)


def test_a_node_that_comes_meanwhile_with_a_resident_harms_nothing(engine: Engine) -> None:
    def come(pause: int) -> None:
        name = f"new-{pause}"
        worlds.add_node(engine, name, {})
        engine.put_assignment(bound(f"on-{name}", "disk", NOW - 100.0, name))
        engine.refresh(NOW)

    question = RankQuestion("memory", limit=2 * MANY, seed=1, resident_slowdown_limit=50.0)
    ranking, pauses = in_pauses(engine, question, come)
    assert pauses
    assert {f"node-{n:03}" for n in range(MANY)} <= {node.node_id for node in ranking.nodes}


def test_a_fleet_that_changes_all_the_time_is_ranked_all_the_same(engine: Engine) -> None:
    answer, _ = in_pauses(
        engine, ALL, lambda pause: engine.drop_node(f"node-{MANY - 1 - pause:03}")
    )

    gone = MANY - len(answer.nodes)
    assert 0 < gone < 10
    assert answer.candidates == len(answer.nodes)


@pytest.mark.parametrize("question", [ALL, SET])
def test_a_message_that_is_made_in_steps_is_the_ranking(
    engine: Engine, question: RankQuestion
) -> None:
    engine.put_scale_model("memory", read(scale_document()))
    ranking = engine.rank(question, NOW)
    assert all(node_set.scaled is not None for node_set in ranking.sets)
    assert sum(1 for _ in ranking_message(ranking)) >= 2
    message = finish(ranking_message(ranking))
    assert message == to_message(ranking, predictor_pb2.RankNodesResponse)


def test_other_calls_have_their_turn(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pauses, "_PAUSE_S", 0.0)
    service = PredictorService(engine, lambda: NOW)
    order: list[str] = []

    async def call(name: str, limit: int) -> Any:
        answer = await service.RankNodes(
            predictor_pb2.RankNodesRequest(app="memory", limit=limit, seed=1), None
        )
        order.append(name)
        return answer

    async def both() -> Any:
        return await asyncio.gather(call("long", MANY), call("short", 1))

    long, short = asyncio.run(both())

    assert order == ["short", "long"]
    assert (len(long.nodes), len(short.nodes)) == (MANY, 1)


def test_a_job_is_predicted_in_steps(engine: Engine) -> None:
    engine.put_scale_model("memory", read(scale_document()))
    nodes = tuple(f"node-{n:03}" for n in range(64))
    question = Question("memory", nodes=nodes, scaling=Scaling(64))

    answer, pauses = driven(engine.predict_in_steps(question, NOW))

    assert answer == engine.predict(question, NOW)
    assert answer.node_id == nodes[-1]
    assert pauses >= len(nodes)


def test_the_answer_about_a_large_job_is_written_in_steps(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine.put_scale_model("memory", read(scale_document()))
    nodes = [f"node-{n:03}" for n in range(MANY)]
    scaling = predictor_pb2.Scaling(machines=MANY)
    question = predictor_pb2.PredictQuestion(app="memory", nodes=nodes, scaling=scaling)
    monkeypatch.setattr(pauses, "_PAUSE_S", 0.0)
    service = PredictorService(engine, lambda: NOW)

    response = asyncio.run(
        service.Predict(predictor_pb2.PredictRequest(questions=[question]), None)
    )

    wanted = engine.predict(Question("memory", nodes=tuple(nodes), scaling=Scaling(MANY)), NOW)
    assert response.answers[0].prediction == to_message(wanted, predictor_pb2.Prediction)
    assert len(response.answers[0].prediction.scaled.nodes) == MANY


def test_who_came_in_a_pause_is_judged_by_what_it_meets_itself() -> None:
    """Where nodes are ranked by their history: of those that are worked out after the pause."""
    engine = worlds.engine()
    count = 150
    for n in range(count):
        worlds.add_node(engine, f"node-{n}", {"stream.triad": 0.7}, taken_at=NOW - 2000.0)
        usual = worlds.fingerprint(worlds.slowed({"stream.triad": 0.7}), NOW - 3000.0, f"node-{n}")
        engine.put_fingerprint(f"node-{n}", 0, usual, now=NOW)
        engine.put_assignment(bound(f"before-{n}", "memory", NOW - 4000.0, f"node-{n}"))
    engine.refresh(NOW, 10.0)

    def change(pause: int) -> None:
        # It had ended long before the reading, which is of others: the next one meets all of it.
        for n in range(count if pause == 0 else 0):
            gone = bound(f"before-{n}", "memory", NOW - 4000.0, f"node-{n}")
            engine.put_assignment(released(gone, NOW - 2500.0))
            engine.put_assignment(bound(f"after-{n}", "memory", NOW - 5.0, f"node-{n}"))
        engine.refresh(NOW, 10.0)

    question = RankQuestion("quiet", limit=count, seed=1, stale_policy="history")
    ranking, pauses = in_pauses(engine, question, change)

    assert pauses >= 1
    logs = [math.log(node.worst_resident_slowdown) for node in ranking.nodes]
    assert len(logs) == count
    # With its own pressure taken out of the reading, and next to all of it.
    assert min(logs) == pytest.approx(expected("memory", {"stream.triad": 0.2}), abs=1e-6)
    assert max(logs) == pytest.approx(expected("memory", {"stream.triad": 0.7}), abs=1e-6)
