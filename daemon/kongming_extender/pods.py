"""A pod's annotations, the node that it is bound to, and its progress."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeVar, get_args

from kongming.records.errors import InputError
from kongming.records.fingerprint import PLACEMENTS
from kongming.records.moments import unix
from kongming.records.questions import STALE_POLICIES, StalePolicy

APP = "kongming.dev/app"
LIMIT = "kongming.dev/limit"
PLACEMENT = "kongming.dev/placement"
STALE = "kongming.dev/stale"
UNKNOWN = "kongming.dev/unknown"

UnknownPolicy = Literal["allow", "last", "refuse"]
UNKNOWN_POLICIES: tuple[UnknownPolicy, ...] = get_args(UnknownPolicy)
ANNOTATIONS = {
    APP: "Name of the application, as it was profiled.",
    LIMIT: "Greatest slowdown over the idle node that it may have, such as 1.2.",
    PLACEMENT: "Where its neighbours run relative to it: " + ", ".join(PLACEMENTS) + ".",
    STALE: "How nodes are ranked whose fingerprint is stale: " + ", ".join(STALE_POLICIES) + ".",
    UNKNOWN: "Whether nodes of which nothing is known may take it: "
    + ", ".join(UNKNOWN_POLICIES)
    + ". Default: last for a pod with a limit, allow for others.",
}
"""Annotations that a pod may have, and their meaning."""


_Choice = TypeVar("_Choice", bound=str)

_NAME_BYTES = 256
"""The longest name of an application in the contract (predictor.proto)."""

SHOWN_CHARACTERS = 100
"""Of an annotation that is not understood, in a message."""


@dataclass(frozen=True, slots=True)
class Demand:
    """Requests of a pod. ``limit`` 0 is none, ``unknown`` None the default; ``problems`` are
    annotations that were ignored, and why."""

    app: str = ""
    limit: float = 0.0
    placement: str | None = None
    stale: StalePolicy = "widen"
    unknown: UnknownPolicy | None = None
    problems: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Pod:
    """``node`` is empty before it is bound. Times are unix seconds: when the first container
    started, and when the last one finished. ``exit_status`` is the first that is not 0."""

    uid: str
    namespace: str
    name: str
    demand: Demand
    node: str = ""
    phase: str = "Pending"
    started_at: float | None = None
    finished_at: float | None = None
    exit_status: int = 0
    restarts: int = 0

    @property
    def full_name(self) -> str:
        return f"{self.namespace}/{self.name}"

    @property
    def ended(self) -> bool:
        return self.phase in ("Succeeded", "Failed")


def demand_of(pod: Mapping[str, Any]) -> Demand:
    """Read the annotations; what cannot be understood counts as absent, and is a problem."""
    annotations = _mapping(_mapping(pod, "metadata"), "annotations")
    problems: list[str] = []
    app = annotations.get(APP)
    if app is not None and not (
        isinstance(app, str) and app.isprintable() and len(app.encode()) <= _NAME_BYTES
    ):
        # No server would take it as a name.
        problems.append(
            f"{APP} is {_shown(app)}; allowed: a name of printable characters, up to "
            f"{_NAME_BYTES} bytes"
        )
        app = None
    limit = 0.0
    if LIMIT in annotations:
        limit = _limit(annotations[LIMIT])
        if not limit:
            problems.append(
                f"{LIMIT} is {_shown(annotations[LIMIT])}; allowed: a ratio of 1 or more, "
                "such as 1.2"
            )
    placement = _one_of(PLACEMENT, PLACEMENTS, annotations, problems)
    stale = _one_of(STALE, STALE_POLICIES, annotations, problems)
    unknown = _one_of(UNKNOWN, UNKNOWN_POLICIES, annotations, problems)
    return Demand(
        app="" if app is None else app.strip(),
        limit=limit,
        placement=placement,
        stale=stale or "widen",
        unknown=unknown,
        problems=tuple(problems),
    )


def pod_of(document: Mapping[str, Any]) -> Pod | None:
    """Decode a Pod of the API server; None where it has no UID."""
    metadata = _mapping(document, "metadata")
    uid = metadata.get("uid")
    if not isinstance(uid, str) or not uid:
        return None
    status = _mapping(document, "status")
    containers = status.get("containerStatuses")
    if not isinstance(containers, list):
        containers = []
    statuses = [container for container in containers if isinstance(container, Mapping)]
    states = [_mapping(container, "state") for container in statuses]
    running = [_mapping(state, "running") for state in states]
    ended = [_mapping(state, "terminated") for state in states]
    started = [_unix(state.get("startedAt")) for state in (*running, *ended)]
    finished = [_unix(state.get("finishedAt")) for state in ended]
    codes = [_integer(state.get("exitCode")) for state in ended]
    return Pod(
        uid=uid,
        namespace=str(metadata.get("namespace", "default")),
        name=str(metadata.get("name", "")),
        demand=demand_of(document),
        node=str(_mapping(document, "spec").get("nodeName") or ""),
        phase=str(status.get("phase") or "Pending"),
        started_at=min((at for at in started if at is not None), default=None),
        finished_at=max((at for at in finished if at is not None), default=None),
        exit_status=next((code for code in codes if code), 0),
        restarts=sum(_integer(container.get("restartCount")) for container in statuses),
    )


def _one_of(
    name: str, allowed: Sequence[_Choice], annotations: Mapping[str, Any], problems: list[str]
) -> _Choice | None:
    """The annotation's value; None where it is absent or, which is a problem, another one."""
    if name not in annotations:
        return None
    chosen = next((choice for choice in allowed if choice == annotations[name]), None)
    if chosen is None:
        problems.append(f"{name} is {_shown(annotations[name])}; allowed: {', '.join(allowed)}")
    return chosen


def _shown(value: object) -> str:
    """Shorten a value for a log: users write annotations, of up to 256 KiB."""
    text = repr(value)
    return text if len(text) <= SHOWN_CHARACTERS else f"{text[:SHOWN_CHARACTERS]}..."


def _mapping(document: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    value = document.get(key)
    return value if isinstance(value, Mapping) else {}


def _integer(number: object) -> int:
    return number if isinstance(number, int) else 0


def _limit(text: object) -> float:
    """A ratio of 1 or more; 0 for any other text."""
    try:
        limit = float(str(text))
    except ValueError:
        return 0.0
    return limit if math.isfinite(limit) and limit >= 1.0 else 0.0


def _unix(text: object) -> float | None:
    try:
        return unix(text) if isinstance(text, str) else None
    except InputError:
        return None
