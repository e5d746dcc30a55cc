"""The Predictor service: messages to questions and answers back, nothing else."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import grpc

from kongming.errors import InputError, KongmingError
from kongming.rpc import scaling, values
from kongming.rpc.errors import failure_message
from kongming.rpc.v1 import predictor_pb2, predictor_pb2_grpc
from kongming.scaling import Scaling
from kongming_server.core.engine import Engine
from kongming_server.core.questions import (
    Basis,
    ColocationQuestion,
    Forecast,
    Question,
    RankedNode,
    RankedSet,
    RankRequest,
    StalePolicy,
)

if TYPE_CHECKING:  # Its types take parameters only for a checker.
    Context = grpc.aio.ServicerContext[object, object]

DEFAULT_LEVEL = 0.9
DEFAULT_LIMIT = 10

_AT_ONCE = 16
"""Questions of a batch that are answered before other calls have their turn."""

_POLICIES = {
    predictor_pb2.STALE_POLICY_UNSPECIFIED: StalePolicy.WIDEN,
    predictor_pb2.STALE_POLICY_REFUSE: StalePolicy.REFUSE,
    predictor_pb2.STALE_POLICY_WIDEN: StalePolicy.WIDEN,
    predictor_pb2.STALE_POLICY_HISTORY: StalePolicy.HISTORY,
}

_BASES = {
    Basis.MODEL: predictor_pb2.BASIS_MODEL,
    Basis.NODE_ONLY: predictor_pb2.BASIS_NODE_ONLY,
}


class PredictorService(predictor_pb2_grpc.PredictorServicer):
    """``now`` tells unix seconds. Errors leave as KongmingError: an interceptor maps them."""

    def __init__(self, engine: Engine, now: Callable[[], float] = time.time) -> None:
        self._engine = engine
        self._now = now

    async def Predict(
        self, request: predictor_pb2.PredictRequest, context: Context
    ) -> predictor_pb2.PredictResponse:
        response = predictor_pb2.PredictResponse(request_id=request.request_id)
        for n, asked in enumerate(request.questions):
            if n and n % _AT_ONCE == 0:
                await asyncio.sleep(0)
            answer = response.answers.add()
            try:
                forecast = self._engine.predict(question_from_message(asked), self._now())
                fill_prediction(answer.prediction, forecast)
            except KongmingError as error:
                # One question that cannot be answered leaves the others theirs.
                answer.failure.CopyFrom(failure_message(error))
        return response

    async def PredictColocation(
        self, request: predictor_pb2.PredictColocationRequest, context: Context
    ) -> predictor_pb2.PredictColocationResponse:
        question = ColocationQuestion(
            app=request.app,
            neighbours=tuple(request.neighbours),
            node=request.node or None,
            placement=values.placement_from_message(request.placement),
            level=request.level or DEFAULT_LEVEL,
            model=request.model or None,
            strict=request.strict,
        )
        found = self._engine.predict_colocation(question, self._now())
        response = predictor_pb2.PredictColocationResponse(request_id=request.request_id)
        fill_prediction(response.prediction, found.forecast)
        for impact in found.neighbours:
            neighbour = response.neighbours.add(app=impact.app)
            if impact.slowdown is not None:
                neighbour.slowdown.CopyFrom(values.interval_to_message(impact.slowdown))
        return response

    async def RankNodes(
        self, request: predictor_pb2.RankNodesRequest, context: Context
    ) -> predictor_pb2.RankNodesResponse:
        begun = time.perf_counter()
        found = self._engine.rank(rank_request_from_message(request), self._now())
        response = predictor_pb2.RankNodesResponse(
            request_id=request.request_id,
            nodes=[_ranked_message(node) for node in found.nodes],
            candidates=found.candidates,
            refused=dict(found.refused),
            basis=_BASES[found.basis],
            staleness_seconds=found.staleness_s,
            sets=[_set_message(one) for one in found.sets],
        )
        response.elapsed_seconds = time.perf_counter() - begun
        return response

    async def Explain(
        self, request: predictor_pb2.ExplainRequest, context: Context
    ) -> predictor_pb2.ExplainResponse:
        found = self._engine.explain(question_from_message(request.question), self._now())
        response = predictor_pb2.ExplainResponse(request_id=request.request_id)
        fill_prediction(response.prediction, found.forecast)
        for part in found.contributions:
            response.contributions.add(
                surrogate=part.surrogate,
                family=part.family,
                seconds_per_op=part.seconds_per_op,
                idle_seconds_per_op=part.idle_seconds_per_op,
                log_slowdown=part.log_slowdown,
            )
        if found.forecast.fingerprint_taken_at is not None:
            response.fingerprint_taken_at.CopyFrom(
                values.timestamp(found.forecast.fingerprint_taken_at)
            )
        response.added.extend(found.forecast.added)
        response.removed.extend(found.forecast.removed)
        return response


def question_from_message(message: predictor_pb2.PredictQuestion) -> Question:
    """Raises InputError naming the field."""
    return Question(
        app=message.app,
        node=message.node,
        placement=values.placement_from_message(message.placement),
        level=message.level or DEFAULT_LEVEL,
        stale_policy=_policy(message.stale_policy),
        model=message.model or None,
        model_version=message.model_version,
        domain=message.domain if message.HasField("domain") else None,
        resident_id=message.resident_id,
        strict=message.strict,
        scaling=_scaling(message),
        nodes=tuple(message.nodes),
        driver=message.driver or None,
    )


def rank_request_from_message(message: predictor_pb2.RankNodesRequest) -> RankRequest:
    """Raises InputError naming the field."""
    return RankRequest(
        app=message.app,
        nodes=tuple(message.nodes),
        limit=message.limit or (1 if message.HasField("scaling") else DEFAULT_LIMIT),
        placement=values.placement_from_message(message.placement),
        slowdown_limit=message.slowdown_limit,
        resident_slowdown_limit=message.resident_slowdown_limit,
        newcomer_weight=message.newcomer_weight if message.HasField("newcomer_weight") else 1.0,
        resident_weight=message.resident_weight if message.HasField("resident_weight") else 1.0,
        stale_policy=_policy(message.stale_policy),
        level=message.level or DEFAULT_LEVEL,
        seed=message.seed if message.HasField("seed") else None,
        memory_bytes=message.memory_bytes,
        scaling=_scaling(message),
    )


def fill_prediction(message: predictor_pb2.Prediction, forecast: Forecast) -> None:
    """Write a forecast into an empty message."""
    message.app = forecast.app
    message.node_id = forecast.node_id
    message.domain = forecast.domain
    message.placement = values.placement_to_message(forecast.placement)
    message.basis = _BASES[forecast.basis]
    message.model = forecast.model
    message.model_version = forecast.model_version
    message.metric_unit = forecast.metric_unit
    message.stale = forecast.stale
    message.extrapolating = forecast.extrapolating
    message.slowdown.CopyFrom(values.interval_to_message(forecast.slowdown))
    if forecast.solo is not None:
        message.solo = forecast.solo
    if forecast.runtime is not None:
        message.runtime.CopyFrom(values.interval_to_message(forecast.runtime))
    if forecast.fingerprint_age_s is not None:
        message.fingerprint_age.CopyFrom(values.duration(forecast.fingerprint_age_s))
    for driver in forecast.drivers:
        message.drivers.add(family=driver.family, share=driver.share)
    for placement_id, impact in forecast.residents.items():
        resident = message.residents[placement_id]
        resident.app = impact.app
        resident.slowdown_now.CopyFrom(values.interval_to_message(impact.slowdown_now))
        resident.slowdown_then.CopyFrom(values.interval_to_message(impact.slowdown_then))
    message.warnings.extend(forecast.warnings)
    message.notes.extend(forecast.notes)
    if forecast.scaled is not None:
        message.scaled.CopyFrom(scaling.scaled_to_message(forecast.scaled))


def _ranked_message(node: RankedNode) -> predictor_pb2.RankedNode:
    return predictor_pb2.RankedNode(
        node_id=node.node_id,
        name=node.name,
        domain=node.domain,
        score=node.score,
        slowdown=values.interval_to_message(node.slowdown),
        worst_resident_slowdown=node.worst_resident_slowdown,
        fingerprint_age=(
            None if node.fingerprint_age_s is None else values.duration(node.fingerprint_age_s)
        ),
        stale=node.stale,
        extrapolating=node.extrapolating,
        tied_with_first=node.tied_with_first,
        residents=node.residents,
    )


def _set_message(one: RankedSet) -> predictor_pb2.RankedSet:
    return predictor_pb2.RankedSet(
        nodes=[_ranked_message(node) for node in one.nodes],
        score=one.score,
        slowdown=values.interval_to_message(one.slowdown),
        runtime=None if one.runtime is None else values.interval_to_message(one.runtime),
        scaled=None if one.scaled is None else scaling.scaled_to_message(one.scaled),
        extrapolating=one.extrapolating,
        warnings=one.warnings,
    )


def _scaling(
    message: predictor_pb2.PredictQuestion | predictor_pb2.RankNodesRequest,
) -> Scaling | None:
    return scaling.scaling_from_message(message.scaling) if message.HasField("scaling") else None


def _policy(policy: predictor_pb2.StalePolicy.ValueType) -> StalePolicy:
    found = _POLICIES.get(policy)
    if found is None:
        raise InputError(
            "is no policy.",
            field="stale_policy",
            found=int(policy),
            allowed=", ".join(predictor_pb2.StalePolicy.keys()),
        )
    return found
