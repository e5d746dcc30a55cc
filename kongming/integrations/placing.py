"""Choice of the node that a task should get, from a ranking and from what waits there already.
Pure."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from kongming.records.answers import OUT_OF_SERVICE, NodeReport, RankedNode

NodeOf = Mapping[str, str] | Callable[[str], str | None]
"""The node's name at the server by the framework's id, name or host name of a member."""

RESOURCE = "kongming:"
"""A custom resource of this prefix names the node, as ``kongming:n1``."""


@dataclass(frozen=True, slots=True)
class Member:
    """Part of the framework on which it can place a task: a raylet, a worker. ``names`` are what
    it is called, the most telling first; ``slots`` are the tasks that it runs at a time."""

    id: str
    names: tuple[str, ...]
    slots: int


@dataclass(frozen=True, slots=True)
class Target:
    """The members that are one node of the server."""

    members: tuple[Member, ...]

    @property
    def slots(self) -> int:
        return sum(member.slots for member in self.members)


def resource_name(resources: Iterable[str]) -> str | None:
    """The node's name that a custom resource says, None where none does."""
    names = sorted(name for name in resources if name.startswith(RESOURCE))
    return names[0].removeprefix(RESOURCE) if names else None


def targets(
    members: Iterable[Member], reports: Sequence[NodeReport], node_of: NodeOf | None = None
) -> dict[str, Target]:
    """Return by node id what a task can be placed on: members with a slot whose node is known.

    A member is the node of its own name, else the only node whose name has the same part before
    the first dot, unless that is a number, as of an address. Of several nodes of one name none is
    meant.
    """
    ids = _ids(reports)
    groups: dict[str, list[Member]] = defaultdict(list)
    for member in members:
        node_id = next(
            (id_ for name in _names(member, node_of) if (id_ := _lookup(name, ids)) is not None),
            None,
        )
        if node_id is not None and member.slots > 0:
            groups[node_id].append(member)
    return {node_id: Target(tuple(group)) for node_id, group in groups.items()}


_RECENT_S = 30.0
"""Rankings further apart than this may differ by neighbours that are no residents."""


class OwnTasks:
    """Amount that one task of ours adds to the score of a node as long as it runs there.

    Learned where a ranking shows a node with one task of ours that a recent one showed without any,
    and nothing else came or went there.
    """

    def __init__(self) -> None:
        self._without: dict[str, tuple[RankedNode, float]] = {}
        self.scores: dict[str, float] = {}

    def learn(self, ranked: Iterable[RankedNode], assigned: Mapping[str, int], at: float) -> None:
        """Take a ranking into account, the tasks of ours by node id when it was made, and that time
        in seconds of a steady clock."""
        for node in ranked:
            if not assigned.get(node.node_id, 0):
                self._without[node.node_id] = node, at
                self.scores.pop(node.node_id, None)
                continue
            before, seen_at = self._without.get(node.node_id, (None, at))
            if before is None or node.node_id in self.scores or at - seen_at > _RECENT_S:
                continue
            if assigned[node.node_id] == 1 and node.residents == before.residents + 1:
                self.scores[node.node_id] = max(0.0, node.score - before.score)


def choose(
    ranked: Sequence[RankedNode],
    slots: Mapping[str, int],
    assigned: Mapping[str, int],
    *,
    limit: float = 0.0,
    resident_limit: float = 0.0,
    own: Mapping[str, float] = MappingProxyType({}),
) -> RankedNode | None:
    """Return the node where a task is predicted to end first; None where none is ranked.

    ``slots`` and ``assigned`` are tasks by node id: those that run at a time, and those that were
    placed and have not ended. A task behind others waits as long as they take, so with ``w``
    rounds to wait for, the node's score (a log slowdown) grows by ``log(1 + w)``. The score is
    that next to what runs there now; of a node where a task has to wait, ``own`` is taken off: what
    the task adds that will have ended by then (``OwnTasks``). Near ties keep the order of the
    ranking, which spreads them. Nodes beyond a limit (ratios, 0 for none), or of which it is not
    known that they keep it ("at least" so much), are left out as long as others are there.
    """
    known = [node for node in ranked if node.node_id in slots]
    within = [node for node in known if node.keeps(limit) and node.residents_keep(resident_limit)]
    best = min((node.score for node in known), default=0.0)

    def end(node: RankedNode) -> float:
        rounds = assigned.get(node.node_id, 0) // slots[node.node_id]
        ended = own.get(node.node_id, 0.0) if rounds else 0.0
        return (best if node.tied_with_first else node.score) - ended + math.log1p(rounds)

    return min(within or known, key=end, default=None)


def _names(member: Member, node_of: NodeOf | None) -> Iterable[str]:
    """Return what the user says a member is; its own names where that is nothing."""
    if node_of is None:
        return member.names
    lookup = node_of.get if isinstance(node_of, Mapping) else node_of
    mapped = [node for name in (member.id, *member.names) if (node := lookup(name)) is not None]
    return mapped or member.names


def _ids(reports: Sequence[NodeReport]) -> dict[str, str | None]:
    """Node ids by name, by id and by the first part of a name with a dot behind it; None where
    several are meant."""
    in_service = [report.facts for report in reports if report.state not in OUT_OF_SERVICE]
    exact: dict[str, str | None] = {}
    short: dict[str, str | None] = {}
    for facts in in_service:
        exact[facts.name] = facts.id if facts.name not in exact else None
        first = _first(facts.name)
        # That of an address is a part of a network, which others have too.
        if not first[:-1].isdigit():
            short[first] = facts.id if first not in short else None
    return short | exact | {facts.id: facts.id for facts in in_service}


def _lookup(name: str, ids: Mapping[str, str | None]) -> str | None:
    return ids[name] if name in ids else ids.get(_first(name))


def _first(name: str) -> str:
    return name.partition(".")[0] + "."
