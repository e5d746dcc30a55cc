"""The messages of fleet, profiles and assignments as answers."""

from __future__ import annotations

from typing import Literal

from google.protobuf.timestamp_pb2 import Timestamp

from kongming.records.answers import (
    ApplicationReport,
    Assignment,
    ModelReport,
    NodeReport,
    NodeState,
    OperationReport,
    PlacedApplication,
    Realised,
    TrainedModel,
)
from kongming.rpc.record_codec import node_from_message
from kongming.rpc.v1 import assignments_pb2, fleet_pb2, profiles_pb2
from kongming.rpc.value_codec import json_object, placement_from_message, unix

_NODE_STATES: dict[int, NodeState] = {
    fleet_pb2.NODE_STATE_READY: "ready",
    fleet_pb2.NODE_STATE_SILENT: "silent",
    fleet_pb2.NODE_STATE_SUSPECT: "suspect",
    fleet_pb2.NODE_STATE_STORED: "stored",
}

_OPERATION_STATES: dict[int, Literal["queued", "running", "done", "failed", "cancelled"]] = {
    profiles_pb2.OPERATION_STATE_QUEUED: "queued",
    profiles_pb2.OPERATION_STATE_RUNNING: "running",
    profiles_pb2.OPERATION_STATE_DONE: "done",
    profiles_pb2.OPERATION_STATE_FAILED: "failed",
    profiles_pb2.OPERATION_STATE_CANCELLED: "cancelled",
}

_ASSIGNMENT_STATES: dict[int, Literal["reserved", "bound", "released", "expired"]] = {
    assignments_pb2.ASSIGNMENT_STATE_RESERVED: "reserved",
    assignments_pb2.ASSIGNMENT_STATE_BOUND: "bound",
    assignments_pb2.ASSIGNMENT_STATE_RELEASED: "released",
    assignments_pb2.ASSIGNMENT_STATE_EXPIRED: "expired",
}


def node_report_from_message(message: fleet_pb2.Node) -> NodeReport:
    """Raises InputError where the facts are not valid."""
    return NodeReport(
        facts=node_from_message(message.facts),
        # A state of a newer server is none that promises anything.
        state=_NODE_STATES.get(message.state, "suspect"),
        reason=message.reason,
        last_heartbeat_at=_moment(message.last_heartbeat, message.HasField("last_heartbeat")),
        last_fingerprint_at=_moment(message.last_fingerprint, message.HasField("last_fingerprint")),
        general_slowdown=(
            message.general_slowdown if message.HasField("general_slowdown") else None
        ),
        slowdown=dict(sorted(message.slowdown.items())),
        assignments=tuple(
            PlacedApplication(
                placed.assignment_id,
                placed.app,
                placed.state,
                unix(placed.since),
            )
            for placed in message.assignments
        ),
        probe_cost=message.probe_cost,
    )


def assignment_from_message(message: assignments_pb2.Assignment) -> Assignment:
    return Assignment(
        assignment_id=message.assignment_id,
        app=message.app,
        node_id=message.node_id,
        domain=message.domain,
        placement=placement_from_message(message.placement),
        state=_ASSIGNMENT_STATES.get(message.state, "expired"),
        reserved_at=_moment(message.reserved_at, message.HasField("reserved_at")),
        bound_at=_moment(message.bound_at, message.HasField("bound_at")),
        ended_at=_moment(message.ended_at, message.HasField("ended_at")),
        expires_at=_moment(message.expires_at, message.HasField("expires_at")),
    )


def application_from_message(message: profiles_pb2.Application) -> ApplicationReport:
    """Raises InputError where the document holds what JSON cannot."""
    realised = message.realised
    return ApplicationReport(
        name=message.name,
        identity=message.identity,
        document=json_object(message.document, "document"),
        runs=message.runs,
        trained=tuple(placement_from_message(placement) or "" for placement in message.trained),
        realised=(
            Realised(
                runs=realised.runs,
                median_error_pct=realised.median_error_pct,
                coverage=realised.coverage,
                level=realised.level,
                drifted=realised.drifted,
                reason=realised.reason,
            )
            if message.HasField("realised")
            else None
        ),
    )


def operation_from_message(message: profiles_pb2.Operation) -> OperationReport:
    return OperationReport(
        id=message.id,
        state=_OPERATION_STATES.get(message.state, "queued"),
        progress=message.progress,
        message=message.message,
        started_at=_moment(message.started_at, message.HasField("started_at")),
        ended_at=_moment(message.ended_at, message.HasField("ended_at")),
        trained=tuple(
            TrainedModel(
                app=model.app,
                placement=placement_from_message(model.placement) or "",
                version=model.version,
                promoted=model.promoted,
                reason=model.reason,
                error=model.error,
            )
            for model in message.trained
        ),
        apps=tuple(message.apps),
        cause=message.cause,
        created_at=_moment(message.created_at, message.HasField("created_at")),
    )


def model_from_message(message: profiles_pb2.Model) -> ModelReport:
    return ModelReport(
        app=message.app,
        placement=placement_from_message(message.placement) or "",
        version=message.version,
        identity=message.identity,
        node_id=message.node_id,
        trained_at=_moment(message.trained_at, message.HasField("trained_at")),
        chosen=message.chosen,
        in_service=message.in_service,
        document=message.document,
    )


def _moment(message: Timestamp, there: bool) -> float | None:
    return unix(message) if there else None
