"""Refusals of nodes, and the priorities of the others: pure functions of a ranking."""

from __future__ import annotations

import math
import statistics
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from kongming_scheduling.async_client import ResidentSlowdown
from kongming_scheduling.ranking_cache import NodeScore

from kongming_extender.pods import SHOWN_CHARACTERS, Demand
from kongming_extender.protocol import MAX_PRIORITY

Refusal = Literal["limit", "resident", "unknown"]
"""Why a node is refused: for the pod's own limit, for that of a pod that is there, or since nothing
is known of the node, or of the pod there no more than that it is slowed at least so much."""

REFUSALS: tuple[Refusal, ...] = get_args(Refusal)

TOLERANCE = 1e-9
"""A slowdown that is the limit itself is within it, however it was rounded."""


@dataclass(frozen=True, slots=True)
class Resident:
    """A pod that is on a node and has a limit. ``app`` and ``full_name`` are for messages."""

    uid: str
    app: str
    full_name: str
    limit: float


def reason(refusal: Refusal, app: str, limit: float) -> str:
    """The text that the scheduler puts into the pod's condition.

    It is the same for all nodes and at all times. The scheduler adds equal texts up, and a
    condition that changes has the pod tried again at once: a text with a number of its own for each
    node, or each answer, would have a pod that no node suits tried without a pause.
    """
    name = app[:SHOWN_CHARACTERS]
    match refusal:
        case "limit":
            return f"kongming: {name} would be slower here than its limit {limit:g} allows"
        case "resident":
            return f"kongming: {name} would, or may, slow a pod here beyond that pod's own limit"
        case "unknown":
            return f"kongming: how much {name} would be slowed here is unknown"


def over_limit(
    names: Sequence[str], scores: Mapping[str, NodeScore], limit: float
) -> dict[str, Refusal]:
    """Nodes where the newcomer's own slowdown is above its limit, or not known to be within it
    since it is at least so much. A node of which nothing is known is not among them."""
    if not limit:
        return {}
    greatest = limit * (1.0 + TOLERANCE)
    return {
        name: "limit" if node.slowdown > greatest else "unknown"
        for name in names
        if (node := scores.get(name)) is not None and (node.at_least or node.slowdown > greatest)
    }


def unknown_nodes(
    names: Sequence[str],
    scores: Mapping[str, NodeScore],
    demand: Demand,
    refused: Collection[str],
    *,
    judged: bool,
) -> dict[str, Refusal]:
    """Unknown nodes that are refused. ``refused`` are the known ones that are; ``judged`` is
    whether the application's own slowdown is predicted.

    A pod with a limit comes to an unknown node only where no node at all is known: if each known
    node were too slow for it, the unknown ones would be a refuge from its own limit. A filter has
    to do that, since the scheduler outweighs priorities.
    """
    limit = demand.limit if judged else 0.0
    match demand.unknown or ("last" if limit else "allow"):
        case "allow":
            return {}
        case "last":
            if not (scores if limit else any(n in scores and n not in refused for n in names)):
                return {}
    return {name: "unknown" for name in names if name not in scores}


def nodes_to_check(
    names: Sequence[str],
    scores: Mapping[str, NodeScore],
    residents: Mapping[str, Mapping[str, Resident]],
) -> list[str]:
    """Nodes where some resident's slowdown would be above the strictest limit there, or is not
    known to be within it, so that each resident has to be looked up; the best nodes first.
    ``residents`` are those with limits, by node and UID."""
    to_check = [
        name
        for name in names
        if (on_node := residents.get(name))
        and (node := scores.get(name)) is not None
        and (
            node.worst_at_least
            or node.worst_resident
            > min(resident.limit for resident in on_node.values()) * (1.0 + TOLERANCE)
        )
    ]
    return sorted(to_check, key=lambda name: scores[name].score)


def resident_over_limit(
    impacts: Mapping[str, ResidentSlowdown], residents: Mapping[str, Resident]
) -> tuple[Resident, ResidentSlowdown] | None:
    """A resident that would exceed its limit, or may as it is slowed at least so much, and its
    slowdown; ``impacts`` are the slowdowns that residents would have, by UID."""
    for uid, resident in residents.items():
        slowdown = impacts.get(uid)
        if slowdown is not None and (
            slowdown.at_least or slowdown.median > resident.limit * (1.0 + TOLERANCE)
        ):
            return resident, slowdown
    return None


def priorities(names: Sequence[str], scores: Mapping[str, NodeScore], steep: float) -> list[int]:
    """Priorities of candidates, 0 to 10, in their order.

    10 is the best of them, and a node that is ``steep`` times as bad has 0: differences count by
    what they cost, so that nodes which are much alike share a priority and the scheduler's other
    reasons decide. An unknown node has the median of the others' priorities: that neither draws
    pods to it nor keeps them away.
    """
    known = [node.score for name in names if (node := scores.get(name)) is not None]
    if not known:
        return [0] * len(names)
    best, scale = min(known), MAX_PRIORITY / math.log(steep)
    known_priorities = [max(0, MAX_PRIORITY - int((score - best) * scale + 0.5)) for score in known]
    if len(known_priorities) == len(names):
        return known_priorities
    median = int(statistics.median_low(known_priorities))
    remaining = iter(known_priorities)
    return [next(remaining) if name in scores else median for name in names]


def single_best(names: Sequence[str], priorities: Sequence[int]) -> str | None:
    """The candidate with the greatest priority; None where several have it, among which the
    scheduler draws."""
    if not priorities:
        return None
    greatest = max(priorities)
    if priorities.count(greatest) > 1:
        return None
    return names[priorities.index(greatest)]
