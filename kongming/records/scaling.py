"""Questions and answers of a job that runs on several machines: frozen records, no I/O.

A scale model tells the job's runtime on idle machines, a node's slowdown what its neighbours make
of it; ``kongming.scale.decide.combination`` puts both together.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from kongming.records.errors import InputError
from kongming.records.prediction import Interval

PartKind = Literal["serial", "parallel", "communication", "whole"]
"""Where a part of the runtime is spent: on the driver's node; on all machines at once; between
machines; or it is not known, and the part is all of it."""


MOST_MACHINES = 100_000

_PROFILE = re.compile(r"(?P<job>.+)\.(?P<machines>[1-9][0-9]{0,5})x(?P<scale>[0-9]+(\.[0-9]+)?)")


@dataclass(frozen=True, slots=True)
class Scaling:
    """A number of machines and a share of the input (1 is all of it).

    ``model`` names the scale model; empty is the application's own name. ``machine_type`` and
    ``iterations`` are needed where that model is of several types, or of one iteration.
    """

    machines: int
    scale: float = 1.0
    model: str = ""
    machine_type: str = ""
    iterations: float | None = None

    def __post_init__(self) -> None:
        if not 1 <= self.machines <= MOST_MACHINES:
            raise InputError(
                "is out of range.",
                field="machines",
                value=self.machines,
                allowed=f"1 to {MOST_MACHINES}",
            )
        if not 0.0 < self.scale < math.inf:
            raise InputError(
                "is out of range.", field="scale", value=self.scale, allowed="finite, above 0"
            )
        if self.iterations is not None and not 1.0 <= self.iterations < math.inf:
            raise InputError(
                "is out of range.", field="iterations", value=self.iterations, allowed="1 or more"
            )


def profile_name(job: str, machines: int, scale: float) -> str:
    """Return the name of the application that is profiled as a job on so many machines, at this
    scale: as ``sort.4x0.5``."""
    return f"{job}.{machines}x{scale:.12f}".rstrip("0").rstrip(".")


def profiled_at(app: str, job: str) -> tuple[int, float] | None:
    """Return the machines and the scale at which an application is a profile of a job; None where
    it is none."""
    match = _PROFILE.fullmatch(app) if app.startswith(f"{job}.") else None
    if match is None or match["job"] != job:
        return None
    machines, scale = int(match["machines"]), float(match["scale"])
    return (machines, scale) if machines <= MOST_MACHINES and 0.0 < scale < math.inf else None


class Where(Protocol):
    """Place that a question is about: on a node, or on the nodes of a job."""

    @property
    def node(self) -> str: ...
    @property
    def nodes(self) -> tuple[str, ...]: ...
    @property
    def driver(self) -> str | None: ...
    @property
    def scaling(self) -> Scaling | None: ...
    @property
    def resident_id(self) -> str: ...
    @property
    def domain(self) -> int | None: ...


def check_where(question: Where) -> None:
    """Raises InputError unless it is of a node, or of the nodes of a job, and says only what goes
    with that."""
    if question.scaling is None:
        if not question.node:
            raise InputError("is missing.", field="node")
        others: tuple[tuple[str, object], ...] = (
            ("nodes", question.nodes),
            ("driver", question.driver),
        )
        why = "goes with scaling, which is not given."
    else:
        if not question.nodes:
            raise InputError("is missing.", field="nodes", hint="Name the nodes of the job.")
        others = (
            ("node", question.node),
            ("resident_id", question.resident_id),
            ("domain", None if question.domain is None else str(question.domain)),
        )
        why = "cannot be said of a job on several machines."
    for field, value in others:
        if value:
            raise InputError(why, field=field, value=value)


@dataclass(frozen=True, slots=True)
class ProfiledSlowdown:
    """Slowdown of the job on a node according to its profile at this configuration."""

    machines: int
    scale: float
    slowdown: Interval

    def __post_init__(self) -> None:
        Scaling(self.machines, self.scale)


@dataclass(frozen=True, slots=True)
class SlowedNode:
    """One of the job's nodes, and how much the application is slowed there."""

    node_id: str
    name: str
    slowdown: Interval
    extrapolating: bool = False

    def to_dict(self) -> dict[str, Any]:
        return {
            "node_id": self.node_id,
            "name": self.name,
            "slowdown": self.slowdown.to_dict(),
            "extrapolating": self.extrapolating,
        }


@dataclass(frozen=True, slots=True)
class Part:
    """A term of the runtime and the node that it follows: ``idle_s`` is its seconds on idle
    machines, ``share`` what it makes of the predicted runtime; the shares sum to 1."""

    term: str
    kind: PartKind
    node_id: str
    idle_s: float
    share: float

    def to_dict(self) -> dict[str, Any]:
        return {
            "term": self.term,
            "kind": self.kind,
            "node_id": self.node_id,
            "idle_s": self.idle_s,
            "share": self.share,
        }


@dataclass(frozen=True, slots=True)
class Scaled:
    """Parts of a runtime on several machines.

    ``model`` is the name of the scale model, ``kind`` its form, ``idle_s`` what it tells of idle
    machines. ``driver`` and ``slowest`` are ids of nodes. ``reasons`` tell why the whole is
    extrapolating, whichever part it is.
    """

    machines: int
    scale: float
    model: str
    kind: str
    idle_s: Interval
    driver: str
    slowest: str
    parts: tuple[Part, ...]
    nodes: tuple[SlowedNode, ...]
    reasons: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        return {
            "machines": self.machines,
            "scale": self.scale,
            "model": self.model,
            "kind": self.kind,
            "idle_s": self.idle_s.to_dict(),
            "driver": self.driver,
            "slowest": self.slowest,
            "parts": [part.to_dict() for part in self.parts],
            "nodes": [node.to_dict() for node in self.nodes],
            "reasons": list(self.reasons),
        }
