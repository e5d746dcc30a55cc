"""Readings of the idle node, by slot: a node's own, or those of the fleet's like nodes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import islice

import numpy as np

from kongming.arrays import Floats
from kongming.engine.columns import Columns
from kongming.engine.nodes import Hardware, NodeView
from kongming.engine.slots import ANY_SUITE, Slots

_MOST_HOLDERS = 32
"""Holders of credentials whose like nodes lend a reference to a node without one, at the most."""
_MOST_OF_ONE = 8
"""Nodes of one of them that do."""
_LOOKED_AT = 256
"""Cache domains of one of them that are looked at for these."""

_Kind = tuple[Hardware, int]


class References:
    """The slots' idle references, and who may lend one to a node without."""

    def __init__(self, slots: Slots, columns: Columns) -> None:
        self._slots = slots
        self._columns = columns
        self._times: dict[int, tuple[bytes, dict[str, float] | None]] = {}
        self._lenders: dict[_Kind, dict[str, dict[int, NodeView]]] = {}
        self._held: dict[int, dict[_Kind, str]] = {}

    def put(self, view: NodeView, slot: int, logs: Floats, suite: int) -> None:
        """Put (C,) ``logs`` of the idle node, by a suite version (code, or ``ANY_SUITE``)."""
        self._slots.put_reference(slot, logs, suite)
        kind = view.hardware, suite
        holder = view.holder or view.by or view.facts.id
        held = self._held.setdefault(slot, {})
        if (before := held.get(kind, holder)) != holder:
            self._withdraw(slot, kind, before)
        held[kind] = holder
        self._lenders.setdefault(kind, {}).setdefault(holder, {})[slot] = view

    def drop(self, slot: int) -> None:
        self._times.pop(slot, None)
        for kind, holder in self._held.pop(slot, {}).items():
            self._withdraw(slot, kind, holder)

    def times(self, view: NodeView, slot: int) -> Mapping[str, float] | None:
        """Seconds per operation on the idle node; None without a reference of its own: one that
        others lent says nothing of what this node can have measured."""
        if self._slots.lenders.item(slot):
            return None
        idle = self._slots.idle[slot]
        # It is asked for with every fingerprint, and hardly ever another one.
        content = idle.tobytes()
        known = self._times.get(slot)
        if known is None or known[0] != content:
            times = None if np.isnan(idle).all() else self._columns.times(idle, view.by)
            known = self._times[slot] = (content, times)
        return known[1]

    def borrow(self, view: NodeView, slot: int) -> None:
        """A node without an idle reference of its own is taken to be as the fleet's like nodes."""
        suite = int(self._slots.suite[slot])
        if self._slots.reference(slot, suite) is not None:
            return
        own = self._columns.own_places()
        votes: dict[str, dict[int, Floats]] = {}
        for code in (suite, ANY_SUITE):
            for holder, lenders in self._lenders.get((view.hardware, code), {}).items():
                if holder not in votes and len(votes) == _MOST_HOLDERS:
                    continue
                readings = votes.get(holder, {}) | self._readings(lenders, suite, view.by, own)
                if readings:
                    votes[holder] = readings
        self._slots.lend(slot, [list(vote.values())[:_MOST_OF_ONE] for vote in votes.values()])

    def _readings(
        self, lenders: Mapping[int, NodeView], suite: int, by: str, own: Sequence[int]
    ) -> dict[int, Floats]:
        """(C,) references of one holder's nodes, by their numbers."""
        readings: dict[int, Floats] = {}
        for slot, view in islice(lenders.items(), _LOOKED_AT):
            if view.suspect or view.number in readings or len(readings) == _MOST_OF_ONE:
                continue
            reference = self._slots.reference(slot, suite)
            if reference is not None:
                if own and view.by != by:
                    # What stands there is of other surrogates than the borrower's.
                    reference = reference.copy()
                    reference[[place for place in own if place < len(reference)]] = np.nan
                readings[view.number] = reference
        return readings

    def _withdraw(self, slot: int, kind: _Kind, holder: str) -> None:
        lenders = self._lenders[kind]
        lenders[holder].pop(slot, None)
        if not lenders[holder]:
            del lenders[holder]

    def of_node(self, view: NodeView, suite: int) -> Floats | None:
        """(C,) of the first of the node's domains that has one."""
        for slot in view.slots.values():
            reference = self._slots.reference(slot, suite)
            if reference is not None:
                return reference
        return None
