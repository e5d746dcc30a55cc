"""Figures that a batch system gets of one node, before it is written as that system reads it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from kongming.records.answers import NodeReport, RankedNode
from kongming.records.node_load import lost_share

__all__ = ["NodeFigures", "attribute", "figures"]


@dataclass(frozen=True, slots=True)
class NodeFigures:
    """``slowdown`` is over the idle node and ``lost_share`` what a program loses by it, 0 to 1;
    ``apps`` are predicted slowdowns by application, median and upper end of the interval; that end
    is None where the program is slowed "at least" so much. None, or not there, is not known."""

    state: str
    assignments: int
    fingerprint_age_s: float | None = None
    slowdown: float | None = None
    lost_share: float | None = None
    apps: Mapping[str, tuple[float, float | None]] = field(default_factory=dict)


def figures(
    report: NodeReport, apps: Mapping[str, RankedNode | None], now: float, max_age_s: float
) -> NodeFigures:
    """Nothing but its state is written of a node that is not in service, or whose newest
    fingerprint is older than ``max_age_s``: what is old is not what is there."""
    taken = report.last_fingerprint_at
    age = None if taken is None else max(0.0, now - taken)
    # A node of a store has no agent, and is as its readings say.
    known = report.state in ("ready", "stored") and age is not None and age <= max_age_s
    slowdown = report.general_slowdown if known else None
    return NodeFigures(
        state=report.state,
        assignments=len(report.assignments),
        fingerprint_age_s=age,
        slowdown=slowdown,
        lost_share=None if slowdown is None else lost_share(slowdown),
        apps={
            app: (
                ranked.slowdown.median,
                None if ranked.slowdown.at_least else ranked.slowdown.upper,
            )
            for app, ranked in apps.items()
            if known and ranked is not None
        },
    )


def attribute(app: str) -> str:
    """An application's name as part of an attribute's: other letters become ``_``."""
    return re.sub("[^A-Za-z0-9_]", "_", app)
