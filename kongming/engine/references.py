"""Readings of the idle node, by slot: a node's own, or those of the fleet's like nodes."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain, islice

import numpy as np

from kongming.arrays import Floats
from kongming.engine.columns import Columns
from kongming.engine.nodes import Hardware, NodeView, hardware
from kongming.engine.slots import ANY_SUITE, Slots

_MOST_LENDERS = 32
"""Like nodes whose references are taken for that of a node without one, at the most."""


class References:
    """The slots' idle references, and who may lend one to a node without."""

    def __init__(self, slots: Slots, columns: Columns) -> None:
        self._slots = slots
        self._columns = columns
        self._times: dict[int, tuple[bytes, dict[str, float] | None]] = {}
        self._lenders: dict[tuple[Hardware, int], dict[int, None]] = {}

    def put(self, view: NodeView, slot: int, logs: Floats, suite: int) -> None:
        """Put (C,) ``logs`` of the idle node, by a suite version (code, or ``ANY_SUITE``)."""
        self._slots.put_reference(slot, logs, suite)
        self._lenders.setdefault((hardware(view.facts), suite), {})[slot] = None

    def drop(self, slot: int) -> None:
        self._times.pop(slot, None)
        for lenders in self._lenders.values():
            lenders.pop(slot, None)

    def times(self, view: NodeView, slot: int) -> Mapping[str, float] | None:
        """Seconds per operation on the idle node; None without a reference."""
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
        kind = hardware(view.facts)
        lenders = chain.from_iterable(
            self._lenders.get((kind, code), {}) for code in (suite, ANY_SUITE)
        )
        references = [
            self._slots.reference(lender, suite) for lender in islice(lenders, _MOST_LENDERS)
        ]
        self._slots.lend(slot, [reference for reference in references if reference is not None])

    def of_node(self, view: NodeView, suite: int) -> Floats | None:
        """(C,) of the first of the node's domains that has one."""
        for slot in view.slots.values():
            reference = self._slots.reference(slot, suite)
            if reference is not None:
                return reference
        return None
