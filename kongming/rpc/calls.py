"""Calls of a server: requests, and what their responses mean, for blocking and asyncio clients."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, Literal, TypeVar

from kongming.records.answers import ApplicationReport, Assignment, Forecast, Ranking
from kongming.records.errors import KongmingError
from kongming.records.questions import Question, RankQuestion
from kongming.records.run import Run
from kongming.rpc import fleet_codec, predictor_codec, value_codec
from kongming.rpc.message_codec import from_message
from kongming.rpc.record_codec import run_to_message
from kongming.rpc.v1 import (
    assignments_pb2,
    assignments_pb2_grpc,
    fleet_pb2,
    fleet_pb2_grpc,
    predictor_pb2,
    predictor_pb2_grpc,
    profiles_pb2,
    profiles_pb2_grpc,
)

Result = TypeVar("Result", covariant=True)


@dataclass(frozen=True, slots=True)
class Call(Generic[Result]):
    """``decode`` takes the response, and raises InputError where it is implausible."""

    service: Literal["predictor", "fleet", "profiles", "assignments"]
    method: str
    request: Any
    decode: Callable[[Any], Result]


class Stubs:
    """The stubs of all services on one channel, typed as those of a blocking one."""

    def __init__(self, channel: Any) -> None:
        self.predictor: predictor_pb2_grpc.PredictorStub = predictor_pb2_grpc.PredictorStub(channel)
        self.fleet: fleet_pb2_grpc.FleetStub = fleet_pb2_grpc.FleetStub(channel)
        self.profiles: profiles_pb2_grpc.ProfilesStub = profiles_pb2_grpc.ProfilesStub(channel)
        self.assignments: assignments_pb2_grpc.AssignmentsStub = (
            assignments_pb2_grpc.AssignmentsStub(channel)
        )

    def method(self, call: Call[Any]) -> Callable[..., Any]:
        """The stub's method, to be called with the request."""
        method: Callable[..., Any] = getattr(getattr(self, call.service), call.method)
        return method


def request_id() -> str:
    return uuid.uuid4().hex


def predict(questions: Sequence[Question]) -> Call[tuple[Forecast | KongmingError, ...]]:
    """Answer the questions in their order: each with a forecast, or the reason why it has none."""
    request = predictor_pb2.PredictRequest(
        request_id=request_id(),
        questions=[predictor_codec.question_to_message(question) for question in questions],
    )
    return Call(
        "predictor",
        "Predict",
        request,
        lambda response: tuple(map(predictor_codec.answer_from_message, response.answers)),
    )


def rank_nodes(question: RankQuestion) -> Call[Ranking]:
    request = predictor_codec.rank_to_message(question, request_id())
    return Call("predictor", "RankNodes", request, partial(from_message, Ranking))


def list_nodes(page_token: str = "", page_size: int = 0) -> Call[fleet_pb2.ListNodesResponse]:
    """One page, not decoded: some callers need no more than names."""
    request = fleet_pb2.ListNodesRequest(page_token=page_token, page_size=page_size)
    return Call("fleet", "ListNodes", request, lambda response: response)


def report_run(run: Run, assignment_id: str) -> Call[str]:
    """The reason why the run was rejected; empty where it was accepted."""
    request = fleet_pb2.ReportRunsRequest(
        node_id=run.node_id,
        runs=[fleet_pb2.ReportedRun(run=run_to_message(run), assignment_id=assignment_id)],
    )
    return Call(
        "fleet",
        "ReportRuns",
        request,
        lambda response: response.rejected[0].message if response.rejected else "",
    )


def get_application(name: str) -> Call[ApplicationReport]:
    return Call(
        "profiles",
        "GetApplication",
        profiles_pb2.GetApplicationRequest(name=name),
        lambda response: fleet_codec.application_from_message(response.application),
    )


def reserve(
    assignment_id: str,
    app: str,
    node: str,
    *,
    placement: str | None = None,
    domain: int = 0,
    ttl_s: float | None = None,
    memory_bytes: int = 0,
) -> Call[Assignment]:
    request = assignments_pb2.ReserveRequest(
        assignment_id=assignment_id,
        app=app,
        node=node,
        placement=value_codec.placement_to_message(placement),
        ttl=None if ttl_s is None else value_codec.duration(ttl_s),
        domain=domain,
        memory_bytes=memory_bytes,
    )
    return Call("assignments", "Reserve", request, _assignment)


def bind(
    assignment_id: str, *, app: str = "", node: str = "", started_at: float | None = None
) -> Call[Assignment]:
    request = assignments_pb2.BindRequest(
        assignment_id=assignment_id,
        started_at=None if started_at is None else value_codec.timestamp(started_at),
        app=app,
        node=node,
    )
    return Call("assignments", "Bind", request, _assignment)


def release(assignment_id: str, *, ended_at: float | None = None) -> Call[Assignment]:
    request = assignments_pb2.ReleaseRequest(
        assignment_id=assignment_id,
        ended_at=None if ended_at is None else value_codec.timestamp(ended_at),
    )
    return Call("assignments", "Release", request, _assignment)


def list_assignments(node: str = "", *, ended: bool = False) -> Call[tuple[Assignment, ...]]:
    """Those that are reserved or bound; with ``ended`` the others as well."""
    return Call(
        "assignments",
        "ListAssignments",
        assignments_pb2.ListAssignmentsRequest(node=node, ended=ended),
        lambda response: tuple(map(fleet_codec.assignment_from_message, response.assignments)),
    )


def _assignment(response: Any) -> Assignment:
    return fleet_codec.assignment_from_message(response.assignment)
