"""The Predictor service: messages to questions and answers back, nothing else."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

import grpc
from google.protobuf.message import Message

from kongming.engine.engine import Engine
from kongming.records.answers import Forecast, Ranking
from kongming.records.errors import KongmingError
from kongming.records.questions import ColocationQuestion, Question, RankQuestion
from kongming.records.scaling import Scaled
from kongming.rpc import predictor_codec as codec
from kongming.rpc.message_codec import to_message
from kongming.rpc.v1 import predictor_pb2, predictor_pb2_grpc
from kongming.steps import Steps
from kongming_server.running.pauses import Pauses, with_pauses

if TYPE_CHECKING:  # Its types take parameters only for a checker.
    Context = grpc.aio.ServicerContext[object, object]

_NODES_AT_ONCE = 256
"""Nodes of a ranking that are put into its message in one step: some 5 ms."""


class PredictorService(predictor_pb2_grpc.PredictorServicer):
    """``now`` gives unix seconds. ``id_of`` gives the id of the node that is meant by a name that
    several have, and leaves other texts as they are. Errors leave as KongmingError: an interceptor
    maps them."""

    def __init__(
        self,
        engine: Engine,
        now: Callable[[], float] = time.time,
        id_of: Callable[[str], str] = str,
    ) -> None:
        self._engine = engine
        self._now = now
        self._id_of = id_of

    async def Predict(
        self, request: predictor_pb2.PredictRequest, context: Context
    ) -> predictor_pb2.PredictResponse:
        response = predictor_pb2.PredictResponse(request_id=request.request_id)
        pauses = Pauses()
        for question in request.questions:
            answer = await self._answer(question)
            self.count(answer)
            if isinstance(answer, Forecast) and answer.scaled is not None:
                await with_pauses(_add_job(response, answer, answer.scaled))
            else:
                response.answers.add(**codec.answer_fields(answer))
            await pauses.due()
        return response

    async def PredictColocation(
        self, request: predictor_pb2.PredictColocationRequest, context: Context
    ) -> predictor_pb2.PredictColocationResponse:
        question = _with_ids(codec.colocation_from_message(request), self._id_of)
        answer = self._engine.predict_colocation(question)
        response = to_message(answer, predictor_pb2.PredictColocationResponse)
        response.request_id = request.request_id
        return response

    async def RankNodes(
        self, request: predictor_pb2.RankNodesRequest, context: Context
    ) -> predictor_pb2.RankNodesResponse:
        begun = time.perf_counter()
        question = _with_ids(codec.rank_from_message(request), self._id_of)
        ranking = await with_pauses(self._engine.rank_in_steps(question, self._now()))
        ranking = replace(ranking, elapsed_s=time.perf_counter() - begun)
        response = await with_pauses(ranking_message(ranking))
        response.request_id = request.request_id
        return response

    async def Explain(
        self, request: predictor_pb2.ExplainRequest, context: Context
    ) -> predictor_pb2.ExplainResponse:
        question = _with_ids(codec.question_from_message(request.question), self._id_of)
        explanation = self._engine.explain(question, self._now())
        response = to_message(explanation, predictor_pb2.ExplainResponse)
        response.request_id = request.request_id
        return response

    def count(self, answer: Forecast | KongmingError) -> None:
        """Called with each answer of Predict; nothing is counted here."""

    async def _answer(self, message: predictor_pb2.PredictQuestion) -> Forecast | KongmingError:
        """One question's answer, or why it has none."""
        try:
            question = _with_ids(codec.question_from_message(message), self._id_of)
            answer = self._engine.predict_in_steps(question, self._now())
            return answer if isinstance(answer, Forecast) else await with_pauses(answer)
        except KongmingError as error:
            # One question that cannot be answered leaves the others theirs.
            return error


_AnyQuestion = TypeVar("_AnyQuestion", Question, ColocationQuestion, RankQuestion)


def _with_ids(question: _AnyQuestion, id_of: Callable[[str], str]) -> _AnyQuestion:
    """The same question, with ids in the place of names that several nodes have."""
    changes: dict[str, Any] = {}
    for name in ("node", "driver"):
        node = getattr(question, name, None)
        if node and id_of(node) != node:
            changes[name] = id_of(node)
    nodes = getattr(question, "nodes", ())
    ids = tuple(map(id_of, nodes))
    if ids != nodes:
        changes["nodes"] = ids
    return replace(question, **changes) if changes else question


def _add_job(
    response: predictor_pb2.PredictResponse, answer: Forecast, scaled: Scaled
) -> Steps[None]:
    """Add the answer about a job in steps, as it may have thousands of nodes."""
    fields = codec.answer_fields(replace(answer, scaled=replace(scaled, nodes=())))
    message = response.answers.add(**fields)
    yield from _extended(message.prediction.scaled.nodes, scaled.nodes, predictor_pb2.SlowedNode)


def ranking_message(ranking: Ranking) -> Steps[predictor_pb2.RankNodesResponse]:
    """Encode a ranking in steps, as it may have thousands of nodes."""
    response = to_message(replace(ranking, nodes=(), sets=()), predictor_pb2.RankNodesResponse)
    yield from _extended(response.nodes, ranking.nodes, predictor_pb2.RankedNode)
    for ranked in ranking.sets:
        scaled = None if ranked.scaled is None else replace(ranked.scaled, nodes=())
        message = response.sets.add()
        message.MergeFrom(
            to_message(replace(ranked, nodes=(), scaled=scaled), predictor_pb2.RankedSet)
        )
        yield from _extended(message.nodes, ranked.nodes, predictor_pb2.RankedNode)
        if ranked.scaled is not None:
            slowed = message.scaled.nodes
            yield from _extended(slowed, ranked.scaled.nodes, predictor_pb2.SlowedNode)
    return response


def _extended(messages: Any, records: Sequence[object], kind: type[Message]) -> Steps[None]:
    for start in range(0, len(records), _NODES_AT_ONCE):
        part = records[start : start + _NODES_AT_ONCE]
        messages.extend([to_message(record, kind) for record in part])
        yield
