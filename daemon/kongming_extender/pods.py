"""What a pod says of itself: its annotations, where it is bound, and how far it has come."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from kongming.fingerprint import PLACEMENTS
from kongming.rpc.questions import STALE_POLICIES, StalePolicy

APP = "kongming.dev/app"
LIMIT = "kongming.dev/limit"
PLACEMENT = "kongming.dev/placement"
STALE = "kongming.dev/stale"
ANNOTATIONS = {
    APP: "Name of the application, as it was profiled.",
    LIMIT: "Greatest slowdown over the idle node that it may have, as 1.2.",
    PLACEMENT: "Where its neighbours run relative to it: " + ", ".join(PLACEMENTS) + ".",
    STALE: "What to make of nodes whose fingerprint is old: " + ", ".join(STALE_POLICIES) + ".",
}
"""What a pod may say, and what it means."""


@dataclass(frozen=True, slots=True)
class Demand:
    """What a pod asks for. ``limit`` 0 is none; ``wrong`` says which annotations were of no use,
    and why."""

    app: str = ""
    limit: float = 0.0
    placement: str | None = None
    stale: StalePolicy = "widen"
    wrong: tuple[str, ...] = ()


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
    def title(self) -> str:
        return f"{self.namespace}/{self.name}"

    @property
    def ended(self) -> bool:
        return self.phase in ("Succeeded", "Failed")


def demand_of(pod: Mapping[str, Any]) -> Demand:
    """From the annotations; what cannot be understood counts as not said, and is told."""
    said = _mapping(_mapping(pod, "metadata"), "annotations")
    wrong: list[str] = []
    app = said.get(APP)
    limit = 0.0
    if LIMIT in said:
        limit = _limit(said[LIMIT])
        if not limit:
            wrong.append(f"{LIMIT} is {said[LIMIT]!r}; allowed: a ratio of 1 or more, as 1.2")
    placement = said.get(PLACEMENT)
    if placement is not None and placement not in PLACEMENTS:
        wrong.append(f"{PLACEMENT} is {placement!r}; allowed: {', '.join(PLACEMENTS)}")
        placement = None
    stale: StalePolicy = "widen"
    if STALE in said:
        named = [policy for policy in STALE_POLICIES if policy == said[STALE]]
        if named:
            stale = named[0]
        else:
            wrong.append(f"{STALE} is {said[STALE]!r}; allowed: {', '.join(STALE_POLICIES)}")
    return Demand(
        app=app.strip() if isinstance(app, str) else "",
        limit=limit,
        placement=placement,
        stale=stale,
        wrong=tuple(wrong),
    )


def pod_of(document: Mapping[str, Any]) -> Pod | None:
    """A Pod as the API server tells it; None where it has no UID."""
    metadata = _mapping(document, "metadata")
    uid = metadata.get("uid")
    if not isinstance(uid, str) or not uid:
        return None
    status = _mapping(document, "status")
    told = status.get("containerStatuses")
    statuses = [one for one in told if isinstance(one, Mapping)] if isinstance(told, list) else []
    states = [_mapping(one, "state") for one in statuses]
    running = [_mapping(state, "running") for state in states]
    ended = [_mapping(state, "terminated") for state in states]
    started = [_moment(state.get("startedAt")) for state in (*running, *ended)]
    finished = [_moment(state.get("finishedAt")) for state in ended]
    codes = [_whole(state.get("exitCode")) for state in ended]
    return Pod(
        uid=uid,
        namespace=str(metadata.get("namespace", "default")),
        name=str(metadata.get("name", "")),
        demand=demand_of(document),
        node=str(_mapping(document, "spec").get("nodeName") or ""),
        phase=str(status.get("phase") or "Pending"),
        started_at=min((one for one in started if one is not None), default=None),
        finished_at=max((one for one in finished if one is not None), default=None),
        exit_status=next((code for code in codes if code), 0),
        restarts=sum(_whole(one.get("restartCount")) for one in statuses),
    )


def _mapping(document: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    found = document.get(key)
    return found if isinstance(found, Mapping) else {}


def _whole(number: object) -> int:
    return number if isinstance(number, int) else 0


def _limit(text: object) -> float:
    """0 for what is no limit."""
    try:
        limit = float(str(text))
    except ValueError:
        return 0.0
    return limit if math.isfinite(limit) and limit >= 1.0 else 0.0


def _moment(text: object) -> float | None:
    if not isinstance(text, str):
        return None
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        return None
    return (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp()
