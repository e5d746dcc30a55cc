"""Permissions, who may call what: one table for gRPC and for HTTP."""

from __future__ import annotations

import enum
from collections.abc import Mapping

from kongming.records.errors import AccessError

__all__ = ["PERMISSIONS", "PROBES", "PUBLIC", "UNQUEUED", "WATCHER", "Role", "permit"]


class Role(enum.StrEnum):
    """Role of a caller: what it is trusted with. An operator may do all, a monitor reads metrics
    alone."""

    AGENT = "agent"
    MONITOR = "monitor"
    SCHEDULER = "scheduler"
    OPERATOR = "operator"


_AGENT = frozenset({Role.AGENT, Role.OPERATOR})
_SCHEDULER = frozenset({Role.SCHEDULER, Role.OPERATOR})
_REPORTER = _AGENT | _SCHEDULER
_OPERATOR = frozenset({Role.OPERATOR})
_METRICS = _SCHEDULER | {Role.MONITOR}

PUBLIC = frozenset(
    {
        "/grpc.health.v1.Health/Check",
        "/grpc.health.v1.Health/List",
        "/grpc.health.v1.Health/Watch",
        "GET /healthz",
        "GET /readyz",
        "GET /openapi.json",
        "GET /watcher/health",
        "GET /docs",
    }
)
"""What anybody may ask who reaches the server: it tells nothing of nodes or applications."""

PROBES = frozenset({"/grpc.health.v1.Health/Check", "GET /healthz", "GET /readyz"})
"""What decides whether the server is started again, or gets calls at all."""

WATCHER = frozenset({"GET /watcher"})
"""What anybody may ask as well under ``security.public_watcher``."""

UNQUEUED = PUBLIC | {"GET /metrics"}
"""What is answered however many calls are at work, so that a full server can be distinguished from
one that is gone."""

PERMISSIONS: Mapping[str, frozenset[Role]] = {
    "/kongming.rpc.v1.Predictor/Predict": _SCHEDULER,
    "/kongming.rpc.v1.Predictor/PredictColocation": _SCHEDULER,
    "/kongming.rpc.v1.Predictor/RankNodes": _SCHEDULER,
    "/kongming.rpc.v1.Predictor/Explain": _SCHEDULER,
    "/kongming.rpc.v1.Fleet/Register": _AGENT,
    "/kongming.rpc.v1.Fleet/Report": _AGENT,
    # A scheduler reports how long what it placed has run.
    "/kongming.rpc.v1.Fleet/ReportRuns": _REPORTER,
    "/kongming.rpc.v1.Fleet/ListNodes": _SCHEDULER,
    "/kongming.rpc.v1.Fleet/WatchNode": _SCHEDULER,
    "/kongming.rpc.v1.Fleet/RequestProfile": _OPERATOR,
    "/kongming.rpc.v1.Profiles/RegisterApplication": _OPERATOR,
    "/kongming.rpc.v1.Profiles/GetApplication": _SCHEDULER,
    "/kongming.rpc.v1.Profiles/ListApplications": _SCHEDULER,
    "/kongming.rpc.v1.Profiles/ImportRuns": _OPERATOR,
    "/kongming.rpc.v1.Profiles/Train": _OPERATOR,
    "/kongming.rpc.v1.Profiles/GetOperation": _OPERATOR,
    "/kongming.rpc.v1.Profiles/ListOperations": _OPERATOR,
    "/kongming.rpc.v1.Profiles/WatchOperation": _OPERATOR,
    "/kongming.rpc.v1.Profiles/CancelOperation": _OPERATOR,
    "/kongming.rpc.v1.Profiles/GetModel": _OPERATOR,
    "/kongming.rpc.v1.Profiles/ListModels": _SCHEDULER,
    "/kongming.rpc.v1.Profiles/DeleteModel": _OPERATOR,
    "/kongming.rpc.v1.Profiles/PromoteModel": _OPERATOR,
    "/kongming.rpc.v1.Assignments/Reserve": _SCHEDULER,
    # An agent tells what a batch system of its node has started there.
    "/kongming.rpc.v1.Assignments/Bind": _REPORTER,
    "/kongming.rpc.v1.Assignments/Release": _SCHEDULER,
    "/kongming.rpc.v1.Assignments/ListAssignments": _SCHEDULER,
    "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo": _REPORTER,
    "GET /metrics": _METRICS,
    "GET /watcher": _METRICS,
}
"""The roles that may call each method. What is not here, and not public, no role may call."""


def permit(method: str, role: Role) -> None:
    """Check that ``role`` may call ``method``.

    Raises:
        AccessError: it may not; the message names the roles that may.
    """
    allowed = PERMISSIONS.get(method, frozenset())
    if role in allowed or method in PUBLIC:
        return
    who = ", ".join(sorted(allowed)) or "nobody"
    raise AccessError(
        f"The role {role} may not call {method}.",
        reason="forbidden",
        hint=f"Allowed: {who}. Use a token or a certificate of such a role.",
    )
