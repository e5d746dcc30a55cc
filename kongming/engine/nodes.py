"""The nodes in service: by id and by name, with their state and the slots of their domains."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from kongming.arrays import growth
from kongming.engine.settings import Settings
from kongming.records.answers import NodeState
from kongming.records.errors import InputError, UnknownNameError
from kongming.records.fingerprint import NodeFacts

MOST_DOMAINS = 256
"""Last-level cache domains of a node at the most."""


Hardware = tuple[str, str, str, int, int, int]
"""What nodes of one kind have in common: architecture, CPU and caches."""


@dataclass(slots=True)
class NodeView:
    """Knowledge of one node except its readings. ``number`` is its place in arrays by node,
    ``slots`` are by domain, ``last_seen`` the newest sign of life (unix seconds), ``has_agent``
    whether any came from an agent: without one a node is as its stored readings say; ``by`` whose
    its readings are (``columns``), ``holder`` whose the node is, where that is known without it:
    nodes of one holder are one vote about what an idle node is (``references``); ``hardware`` is
    that of its ``facts``."""

    number: int
    facts: NodeFacts
    slots: dict[int, int] = field(default_factory=dict)
    last_heartbeat: float | None = None
    last_seen: float = -math.inf
    has_agent: bool = False
    suspect: str = ""
    probe_cost: float = 0.0
    by: str = ""
    holder: str = ""
    hardware: Hardware = field(init=False)

    def __post_init__(self) -> None:
        self.hardware = hardware(self.facts)


def hardware(node: NodeFacts) -> Hardware:
    return (
        node.architecture,
        node.cpu_vendor,
        node.cpu_model,
        node.l1d_bytes,
        node.l2_bytes,
        node.llc_bytes,
    )


def domain_of(node: NodeFacts, cpu: int) -> int | None:
    """The last-level cache domain that holds a CPU: its place in ``NodeFacts.llc_cpus``; 0 where
    the node names none, None where none holds it."""
    if not node.llc_cpus:
        return 0
    return next((place for place, cpus in enumerate(node.llc_cpus) if cpu in cpus), None)


class Nodes:
    """``seen`` (infinite without an agent), ``suspect`` and ``memory`` (bytes that are not
    promised to anyone) are arrays by a node's number; numbers of dropped nodes are used again."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._by_id: dict[str, NodeView] = {}
        self._ids_by_name: dict[str, set[str]] = {}
        self._ids: list[str] = []
        self._free: list[int] = []
        self.seen = np.full(64, math.inf)
        self.suspect = np.zeros(64, dtype=np.bool_)
        self.memory = np.full(64, math.inf)

    def __len__(self) -> int:
        return len(self._by_id)

    def __iter__(self) -> Iterator[NodeView]:
        return iter(self._by_id.values())

    @property
    def count(self) -> int:
        """One more than the greatest number in use."""
        return len(self._ids)

    def put(self, facts: NodeFacts) -> NodeView:
        known = self._by_id.get(facts.id)
        if known is not None:
            if facts.name != known.facts.name:
                self._unname(known.facts)
                self._ids_by_name.setdefault(facts.name, set()).add(facts.id)
            known.facts, known.hardware = facts, hardware(facts)
            return known
        view = self._by_id[facts.id] = NodeView(self._number(facts.id), facts)
        self._ids_by_name.setdefault(facts.name, set()).add(facts.id)
        return view

    def drop(self, node_id: str) -> NodeView | None:
        view = self._by_id.pop(node_id, None)
        if view is not None:
            self._unname(view.facts)
            self._free.append(view.number)
            self._ids[view.number] = ""
        return view

    def get(self, node_id: str) -> NodeView | None:
        return self._by_id.get(node_id)

    def find(self, id_or_name: str) -> NodeView:
        """Raises UnknownNameError for an unknown node, InputError for a name that several have."""
        view = self._by_id.get(id_or_name)
        if view is not None:
            return view
        ids = self._ids_by_name.get(id_or_name, set())
        if len(ids) == 1:
            return self._by_id[next(iter(ids))]
        if ids:
            raise InputError(
                "is the name of several nodes.",
                field="node",
                value=id_or_name,
                allowed=f"one of the ids {', '.join(sorted(ids)[:4])}",
            )
        raise UnknownNameError(
            "node",
            id_or_name,
            self._ids_by_name,
            hint="List them: kongming nodes"
            if self._ids_by_name
            else "An agent that runs on it makes it known, or 'kongming fingerprint' there.",
        )

    def number_of(self, node_id: str) -> int:
        """-1 where the node is not in service."""
        view = self._by_id.get(node_id)
        return -1 if view is None else view.number

    def at(self, number: int) -> NodeView:
        return self._by_id[self._ids[number]]

    def saw(self, view: NodeView, when: float, *, agent: bool = False) -> None:
        """A sign of life, of its ``agent`` or in what was measured there."""
        view.last_seen = max(view.last_seen, when)
        view.has_agent |= agent
        if view.has_agent:
            self.seen[view.number] = view.last_seen

    def mark(self, view: NodeView, reason: str) -> None:
        """``reason`` empty clears it."""
        view.suspect = reason
        self.suspect[view.number] = bool(reason)

    def state(self, view: NodeView, now: float) -> tuple[NodeState, str]:
        """The state, and why it is not ready."""
        if view.suspect:
            return "suspect", view.suspect
        if not view.has_agent:
            return "stored", ""
        if not self.is_heard(view, now):
            return "silent", f"It was last heard of {now - view.last_seen:.0f} s ago."
        return "ready", ""

    def is_heard(self, view: NodeView, now: float) -> bool:
        """Return whether it has an agent that is not silent."""
        return view.has_agent and now - view.last_seen <= self._settings.silent_after_s

    def _number(self, node_id: str) -> int:
        if self._free:
            number = self._free.pop()
            self._ids[number] = node_id
        else:
            number = len(self._ids)
            self._ids.append(node_id)
            if number == len(self.seen):
                more = growth(number)
                self.seen = np.concatenate([self.seen, np.full(more, math.inf)])
                self.suspect = np.concatenate([self.suspect, np.zeros(more, dtype=np.bool_)])
                self.memory = np.concatenate([self.memory, np.full(more, math.inf)])
        self.seen[number], self.suspect[number], self.memory[number] = math.inf, False, math.inf
        return number

    def _unname(self, facts: NodeFacts) -> None:
        ids = self._ids_by_name.get(facts.name, set())
        ids.discard(facts.id)
        if not ids:
            self._ids_by_name.pop(facts.name, None)
