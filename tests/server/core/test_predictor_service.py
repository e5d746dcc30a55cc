"""The Predictor service says in messages what the engine says in records."""

from __future__ import annotations

import asyncio
import math
from typing import Any

import pytest
from kongming_server.services.predictor import PredictorService

from kongming.engine.engine import Engine
from kongming.records.errors import UnknownNameError
from kongming.rpc.v1 import predictor_pb2, records_pb2
from tests.server.core import worlds
from tests.server.core.worlds import NOW, PRESSURE, bound


@pytest.fixture
def service() -> PredictorService:
    engine: Engine = worlds.engine()
    worlds.add_node(engine, logs=PRESSURE["disk"])
    worlds.add_node(engine, "node-2", {"stream.triad": 1.0})
    engine.put_assignment(bound("d", "disk", NOW - 100.0))
    engine.put_assignment(bound("m", "memory", NOW - 1.0))
    return PredictorService(engine, lambda: NOW)


def call(method: Any, request: Any) -> Any:
    return asyncio.run(method(request, None))


def test_a_batch_answers_each_question_or_says_why_not(service: PredictorService) -> None:
    questions = [
        predictor_pb2.PredictQuestion(app="memory", node="node-1"),
        predictor_pb2.PredictQuestion(app="memory", node="nowhere"),
        predictor_pb2.PredictQuestion(app="stranger", node="name-node-2"),
        predictor_pb2.PredictQuestion(app="memory", node="node-1", level=2.0),
    ]

    response = call(
        service.Predict, predictor_pb2.PredictRequest(request_id="r", questions=questions)
    )

    assert response.request_id == "r"
    first, unknown, stranger, invalid = response.answers
    prediction = first.prediction
    assert math.log(prediction.slowdown.median) == pytest.approx(0.43, abs=1e-6)
    assert prediction.runtime.median == pytest.approx(10.0 * prediction.slowdown.median)
    assert (prediction.model, prediction.model_version, prediction.solo) == ("LM", 1, 10.0)
    assert prediction.placement == records_pb2.PLACEMENT_CROSS_CORE
    assert prediction.basis == predictor_pb2.BASIS_MODEL
    assert prediction.fingerprint_age.ToTimedelta().total_seconds() == pytest.approx(10.0)
    assert {driver.family for driver in prediction.drivers} == {"cache", "memory"}
    assert set(prediction.residents) == {"d", "m"}
    assert (
        prediction.residents["m"].slowdown_then.median
        > prediction.residents["m"].slowdown_now.median
    )
    assert unknown.failure.code == "NOT_FOUND"
    assert stranger.prediction.basis == predictor_pb2.BASIS_NODE_ONLY
    assert not stranger.prediction.HasField("runtime")
    assert not stranger.prediction.HasField("solo")
    assert (invalid.failure.code, invalid.failure.field) == ("INVALID_ARGUMENT", "level")


def test_names_are_looked_up_before_the_engine_is_asked(service: PredictorService) -> None:
    service._id_of = lambda name: "node-2" if name == "shared" else name
    questions = [predictor_pb2.PredictQuestion(app="memory", node="shared")]
    response = call(service.Predict, predictor_pb2.PredictRequest(questions=questions))
    assert response.answers[0].prediction.node_id == "node-2"
    ranking = predictor_pb2.RankNodesRequest(app="quiet", nodes=["shared"])
    response = call(service.RankNodes, ranking)
    assert [node.node_id for node in response.nodes] == ["node-2"]
    response = call(service.Explain, predictor_pb2.ExplainRequest(question=questions[0]))
    assert response.prediction.node_id == "node-2"


def test_a_ranking(service: PredictorService) -> None:
    response = call(
        service.RankNodes, predictor_pb2.RankNodesRequest(app="quiet", seed=1, resident_weight=0.0)
    )

    assert {node.node_id for node in response.nodes} == {"node-1", "node-2"}
    assert response.candidates == 2
    assert response.basis == predictor_pb2.BASIS_MODEL
    assert response.elapsed_seconds > 0.0
    by_id = {node.node_id: node for node in response.nodes}
    assert by_id["node-1"].residents == 2
    assert by_id["node-2"].name == "name-node-2"


def test_a_colocation(service: PredictorService) -> None:
    response = call(
        service.PredictColocation,
        predictor_pb2.PredictColocationRequest(app="memory", neighbours=["disk", "quiet"]),
    )

    assert [neighbour.app for neighbour in response.neighbours] == ["disk", "quiet"]
    assert response.prediction.slowdown.median == pytest.approx(1.0)
    assert not response.prediction.HasField("fingerprint_age")


def test_an_explanation(service: PredictorService) -> None:
    question = predictor_pb2.PredictQuestion(app="memory", node="node-1")

    response = call(service.Explain, predictor_pb2.ExplainRequest(question=question))

    assert response.contributions[0].surrogate == "stream.triad"
    assert response.contributions[0].log_slowdown == pytest.approx(0.25)
    assert list(response.prediction.added) == ["m"]
    assert response.prediction.fingerprint_taken_at.ToMicroseconds() == (NOW - 10.0) * 1e6


def test_errors_leave_as_they_are(service: PredictorService) -> None:
    with pytest.raises(UnknownNameError):
        call(service.RankNodes, predictor_pb2.RankNodesRequest(app="quiet", nodes=["nowhere"]))
