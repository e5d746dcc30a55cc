"""Load of a node, in the few numbers that monitoring and other schedulers understand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

__all__ = ["RESOURCES", "AppSlowdown", "NodeLoad", "Window", "lost_share"]

RESOURCES: Mapping[str, Sequence[str]] = {
    "cpu": ("compute", "os"),
    "memory": ("cache", "memory"),
    "io": ("read", "write", "metadata"),
    "network": ("network",),
}
"""Families of surrogates by the resource that others have a name for."""


def lost_share(slowdown: float) -> float:
    """The share of its time that a program of this slowdown loses to its neighbours: 0 to 1, and 0
    where it runs faster than on the idle node."""
    return max(0.0, 1.0 - 1.0 / slowdown)


@dataclass(frozen=True, slots=True)
class Window:
    """Readings of some time: the mean of their lost shares, and the standard deviation, None of
    fewer than two readings."""

    mean: float
    deviation: float | None


@dataclass(frozen=True, slots=True)
class NodeLoad:
    """One node; ``name`` is that of no other one. ``slowdown`` is over the idle node as things are
    now, by resource and for ``all``; ``windows`` are of stored readings, by resource. What is not
    known, or not known any more, is not in them. ``fingerprint_age_s`` is None where there was
    none."""

    node_id: str
    name: str
    slowdown: Mapping[str, float] = field(default_factory=dict)
    windows: Mapping[str, Window] = field(default_factory=dict)
    fingerprint_age_s: float | None = None
    assignments: int = 0


@dataclass(frozen=True, slots=True)
class AppSlowdown:
    """The slowdown that an application is predicted to meet on the nodes of a fleet."""

    app: str
    placement: str
    least: float
    median: float
    greatest: float
