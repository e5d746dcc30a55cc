"""Which nodes are refused and what the others score: pure functions of a ranking."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kongming_extender.protocol import MOST_POINTS

SLACK = 1e-9
"""A slowdown that is the limit itself is within it, however it was rounded."""


@dataclass(frozen=True, slots=True)
class Row:
    """A node in a ranking. ``badness`` is the server's score: the newcomer's log slowdown, plus
    what it adds to its residents'; lower is better. ``worst_resident`` is the greatest median
    slowdown that a resident would have."""

    node_id: str
    badness: float
    slowdown: float
    worst_resident: float = 1.0
    domain: int = 0
    extrapolating: bool = False


@dataclass(frozen=True, slots=True)
class Resident:
    """A pod that is on a node and has a limit. ``app`` and ``title`` are for people."""

    uid: str
    app: str
    title: str
    limit: float


def over_limit(
    names: Sequence[str], rows: Mapping[str, Row], app: str, limit: float
) -> dict[str, str]:
    """Nodes where the newcomer itself would be slower than it may, with the reason. A node of
    which nothing is known is not refused."""
    if not limit:
        return {}
    most = limit * (1.0 + SLACK)
    return {
        name: f"kongming: {app} would take {row.slowdown:.2f} times as long as on an idle node"
        f"{', a guess outside of what it was profiled under' if row.extrapolating else ''}"
        f"; its limit is {limit:g}"
        for name in names
        if (row := rows.get(name)) is not None and row.slowdown > most
    }


def in_doubt(
    names: Sequence[str],
    rows: Mapping[str, Row],
    residents: Mapping[str, Mapping[str, Resident]],
) -> list[str]:
    """Nodes where some resident would be slower than the strictest limit there, so that each
    resident has to be looked at. ``residents`` are those with limits, by node and UID."""
    return [
        name
        for name in names
        if (theirs := residents.get(name))
        and (row := rows.get(name)) is not None
        and row.worst_resident > min(one.limit for one in theirs.values()) * (1.0 + SLACK)
    ]


def harmed(impacts: Mapping[str, float], residents: Mapping[str, Resident], app: str) -> str | None:
    """The reason why a node is refused for a resident's sake; ``impacts`` are the slowdowns that
    they would have, by UID."""
    for uid, one in residents.items():
        slowdown = impacts.get(uid, 0.0)
        if slowdown > one.limit * (1.0 + SLACK):
            return (
                f"kongming: beside {app}, {one.title} ({one.app}) would take {slowdown:.2f} times "
                f"as long as on an idle node; its limit is {one.limit:g}"
            )
    return None


def points(names: Sequence[str], rows: Mapping[str, Row], steep: float) -> list[int]:
    """Scores of candidates, 0 to 10, in their order.

    10 is the best of them, and a node that is ``steep`` times as bad has 0: differences count by
    what they cost, so that nodes which are much alike share a score and the scheduler's other
    reasons decide. A node of which nothing is known has the median of the others' scores: that
    neither draws pods to it nor keeps them away.
    """
    known = [row.badness for name in names if (row := rows.get(name)) is not None]
    if not known:
        return [0] * len(names)
    best, scale = min(known), MOST_POINTS / math.log(steep)
    made = [max(0, MOST_POINTS - int((badness - best) * scale + 0.5)) for badness in known]
    if len(made) == len(names):
        return made
    middle = int(statistics.median_low(made))
    given = iter(made)
    return [next(given) if name in rows else middle for name in names]


def outstanding(names: Sequence[str], points: Sequence[int]) -> str | None:
    """The one candidate that scores more than all others; None where there are several, among
    which the scheduler draws."""
    if not points:
        return None
    most = max(points)
    if len(points) > 1 and points.count(most) > 1:
        return None
    return names[points.index(most)]
