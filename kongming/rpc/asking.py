"""Questions as messages, and the predictor's messages as answers."""

from __future__ import annotations

from google.protobuf.duration_pb2 import Duration

from kongming.errors import KongmingError
from kongming.prediction import Driver
from kongming.rpc.answers import (
    Basis,
    Colocation,
    Contribution,
    Explanation,
    Forecast,
    NeighbourImpact,
    RankedNode,
    RankedSet,
    Ranking,
    ResidentImpact,
)
from kongming.rpc.errors import from_failure
from kongming.rpc.questions import ColocationQuestion, Question, RankQuestion, StalePolicy
from kongming.rpc.scaling import (
    scaled_from_message,
    scaling_to_message,
)
from kongming.rpc.v1 import predictor_pb2
from kongming.rpc.values import (
    interval_from_message,
    placement_from_message,
    placement_to_message,
    seconds,
    unix,
)

_POLICIES: dict[StalePolicy, predictor_pb2.StalePolicy.ValueType] = {
    "refuse": predictor_pb2.STALE_POLICY_REFUSE,
    "widen": predictor_pb2.STALE_POLICY_WIDEN,
    "history": predictor_pb2.STALE_POLICY_HISTORY,
}


# -- questions ---------------------------------------------------------------------------------


def question_to_message(question: Question) -> predictor_pb2.PredictQuestion:
    return predictor_pb2.PredictQuestion(
        app=question.app,
        node=question.node,
        placement=placement_to_message(question.placement),
        level=question.level,
        stale_policy=_POLICIES[question.stale_policy],
        model=question.model or "",
        model_version=question.model_version,
        domain=question.domain,
        resident_id=question.resident_id,
        strict=question.strict,
        scaling=scaling_to_message(question.scaling),
        nodes=question.nodes,
        driver=question.driver or "",
    )


def colocation_to_message(
    question: ColocationQuestion, request_id: str
) -> predictor_pb2.PredictColocationRequest:
    return predictor_pb2.PredictColocationRequest(
        request_id=request_id,
        app=question.app,
        neighbours=question.neighbours,
        node=question.node or "",
        placement=placement_to_message(question.placement),
        level=question.level,
        model=question.model or "",
        strict=question.strict,
    )


def rank_to_message(question: RankQuestion, request_id: str) -> predictor_pb2.RankNodesRequest:
    return predictor_pb2.RankNodesRequest(
        request_id=request_id,
        app=question.app,
        nodes=question.nodes,
        limit=question.limit,
        placement=placement_to_message(question.placement),
        slowdown_limit=question.slowdown_limit,
        resident_slowdown_limit=question.resident_slowdown_limit,
        newcomer_weight=question.newcomer_weight,
        resident_weight=question.resident_weight,
        stale_policy=_POLICIES[question.stale_policy],
        level=question.level,
        seed=question.seed,
        memory_bytes=question.memory_bytes,
        scaling=scaling_to_message(question.scaling),
    )


# -- answers -----------------------------------------------------------------------------------


def answer_from_message(message: predictor_pb2.PredictAnswer) -> Forecast | KongmingError:
    """A question's answer, or the error that it has in place of one."""
    if message.WhichOneof("answer") == "failure":
        return from_failure(message.failure)
    return forecast_from_message(message.prediction)


def forecast_from_message(message: predictor_pb2.Prediction) -> Forecast:
    """Raises InputError where an interval cannot be true."""
    return Forecast(
        app=message.app,
        node_id=message.node_id,
        domain=message.domain,
        placement=placement_from_message(message.placement) or "",
        basis=_basis(message.basis),
        slowdown=interval_from_message(message.slowdown, "slowdown"),
        model=message.model,
        model_version=message.model_version,
        solo_s=message.solo if message.HasField("solo") else None,
        runtime_s=(
            interval_from_message(message.runtime, "runtime")
            if message.HasField("runtime")
            else None
        ),
        metric_unit=message.metric_unit or "s",
        fingerprint_age_s=_age(message.fingerprint_age, message.HasField("fingerprint_age")),
        stale=message.stale,
        extrapolating=message.extrapolating,
        drivers=tuple(Driver(driver.family, driver.share) for driver in message.drivers),
        residents={
            placement_id: ResidentImpact(
                impact.app,
                interval_from_message(impact.slowdown_now, f"residents.{placement_id}"),
                interval_from_message(impact.slowdown_then, f"residents.{placement_id}"),
            )
            for placement_id, impact in sorted(message.residents.items())
        },
        warnings=tuple(message.warnings),
        notes=tuple(message.notes),
        scaled=scaled_from_message(message.scaled) if message.HasField("scaled") else None,
    )


def colocation_from_message(message: predictor_pb2.PredictColocationResponse) -> Colocation:
    """Raises InputError where an interval cannot be true."""
    return Colocation(
        forecast_from_message(message.prediction),
        tuple(
            NeighbourImpact(
                neighbour.app,
                interval_from_message(neighbour.slowdown, f"neighbours.{neighbour.app}")
                if neighbour.HasField("slowdown")
                else None,
            )
            for neighbour in message.neighbours
        ),
    )


def ranking_from_message(message: predictor_pb2.RankNodesResponse) -> Ranking:
    """Raises InputError where an interval cannot be true."""
    return Ranking(
        nodes=tuple(map(_ranked_from_message, message.nodes)),
        candidates=message.candidates,
        refused=dict(sorted(message.refused.items())),
        basis=_basis(message.basis),
        staleness_s=message.staleness_seconds,
        elapsed_s=message.elapsed_seconds,
        sets=tuple(
            RankedSet(
                nodes=tuple(map(_ranked_from_message, one.nodes)),
                score=one.score,
                slowdown=interval_from_message(one.slowdown, "sets.slowdown"),
                runtime_s=(
                    interval_from_message(one.runtime, "sets.runtime")
                    if one.HasField("runtime")
                    else None
                ),
                scaled=scaled_from_message(one.scaled) if one.HasField("scaled") else None,
                extrapolating=one.extrapolating,
                warnings=tuple(one.warnings),
            )
            for one in message.sets
        ),
    )


def _ranked_from_message(node: predictor_pb2.RankedNode) -> RankedNode:
    return RankedNode(
        node_id=node.node_id,
        name=node.name,
        domain=node.domain,
        score=node.score,
        slowdown=interval_from_message(node.slowdown, f"nodes.{node.name}.slowdown"),
        worst_resident_slowdown=node.worst_resident_slowdown,
        fingerprint_age_s=_age(node.fingerprint_age, node.HasField("fingerprint_age")),
        stale=node.stale,
        extrapolating=node.extrapolating,
        tied_with_first=node.tied_with_first,
        residents=node.residents,
    )


def explanation_from_message(message: predictor_pb2.ExplainResponse) -> Explanation:
    """Raises InputError where an interval cannot be true."""
    return Explanation(
        prediction=forecast_from_message(message.prediction),
        contributions=tuple(
            Contribution(
                part.surrogate,
                part.family,
                part.seconds_per_op,
                part.idle_seconds_per_op,
                part.log_slowdown,
            )
            for part in message.contributions
        ),
        fingerprint_taken_at=(
            unix(message.fingerprint_taken_at) if message.HasField("fingerprint_taken_at") else None
        ),
        added=tuple(message.added),
        removed=tuple(message.removed),
    )


def _basis(basis: predictor_pb2.Basis.ValueType) -> Basis:
    return "node-only" if basis == predictor_pb2.BASIS_NODE_ONLY else "model"


def _age(message: Duration, there: bool) -> float | None:
    return seconds(message) if there else None
