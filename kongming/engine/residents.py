"""Running jobs per node, and whether the latest fingerprint already includes each one.

They adjust the fingerprint for jobs that started or ended since, and are what a new job slows.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from kongming.arrays import Floats, growth
from kongming.engine import awake_shares, environment
from kongming.engine.catalog import Catalog, Pressure
from kongming.engine.columns import Columns, fitted
from kongming.engine.environment import Phase
from kongming.engine.slots import Slots
from kongming.learning.awake import together
from kongming.records.resident import Resident

_Float = TypeVar("_Float", np.float32, np.float64)


@dataclass(frozen=True, eq=False, slots=True)
class Present:
    """An assignment in relation to a slot's fingerprint. ``known`` is False where its signature is
    not, and a typical one stands in; ``here`` whether it is in the slot's own domain."""

    resident: Resident
    phase: Phase
    placement: str
    known: bool
    here: bool


@dataclass(frozen=True, eq=False, slots=True)
class Company:
    """Everyone who matters to one slot. ``met`` (C,) is what a newcomer meets; ``each`` (n, C)
    what each of ``present`` meets itself: all of it but its own pressure. ``awake`` (2,) and
    ``each_awake`` (n, 2) are the shares of time in which a CPU is kept awake next to them, in pairs
    (``awake_shares``); ``awake`` is NaN without residents. ``noise`` (C,) and ``each_noise``
    (n, C) are as in ``environment.Environments``, in single precision: there are many."""

    present: tuple[Present, ...]
    met: Floats
    each: Floats
    noise: NDArray[np.float32]
    each_noise: NDArray[np.float32]
    awake: Floats
    each_awake: Floats

    @property
    def here(self) -> list[int]:
        """Places in ``present`` of those that hold one in this very domain."""
        return [i for i, p in enumerate(self.present) if p.here and p.resident.active]

    def awake_for(self, placement: str, place: int | None = None) -> float:
        """Return the share of time in which a CPU is kept awake next to a model's program at this
        placement: a newcomer, or who is at ``place`` in ``present``."""
        shares = self.awake if place is None else self.each_awake[place]
        return float(shares[awake_shares.counted(placement)])

    def awake_for_those(self, places: Sequence[int]) -> Floats:
        """Return the shares, (n,), next to those at ``places``, each at its placement."""
        which = [awake_shares.counted(self.present[i].placement) for i in places]
        return self.each_awake[places, which]

    def named(self, phase: Phase) -> tuple[str, ...]:
        return tuple(
            member.resident.assignment_id for member in self.present if member.phase is phase
        )

    def place(self, assignment_id: str) -> int | None:
        """Return where in ``present`` an assignment is."""
        for i, member in enumerate(self.present):
            if member.resident.assignment_id == assignment_id:
                return i
        return None


class Residents:
    """Assignments by node: those that are active, and those that ended and may still be in a
    fingerprint."""

    def __init__(self) -> None:
        self._by_node: dict[str, dict[str, Resident]] = {}
        self._node_of: dict[str, str] = {}

    def put(self, resident: Resident) -> None:
        """An assignment in any state; the newest that is said of an id counts."""
        known = self._node_of.get(resident.assignment_id)
        if known is not None and known != resident.node_id:
            self._drop(resident.assignment_id)
        self._node_of[resident.assignment_id] = resident.node_id
        self._by_node.setdefault(resident.node_id, {})[resident.assignment_id] = resident

    def find(self, assignment_id: str) -> Resident | None:
        node = self._node_of.get(assignment_id)
        return None if node is None else self._by_node[node][assignment_id]

    def on(self, node_id: str) -> list[Resident]:
        return list(self._by_node.get(node_id, {}).values())

    def active_on(self, node_id: str) -> list[Resident]:
        return [resident for resident in self._by_node.get(node_id, {}).values() if resident.active]

    def apps(self) -> dict[str, set[str]]:
        """Nodes by the applications that are on them."""
        nodes: dict[str, set[str]] = {}
        for node_id, residents in self._by_node.items():
            for resident in residents.values():
                nodes.setdefault(resident.app, set()).add(node_id)
        return nodes

    def forget_absent(self, node_id: str, taken_at: list[float | None]) -> None:
        """Forget those that ended before every one of the node's newest fingerprints."""
        for resident in self.on(node_id):
            if all(environment.phase(resident, when) is Phase.ABSENT for when in taken_at):
                self._drop(resident.assignment_id)

    def company(
        self,
        slots: Slots,
        slot: int,
        node_id: str,
        catalog: Catalog,
        columns: Columns,
        fingerprint: Floats | None = None,
    ) -> Company:
        """Return who matters to this slot, by its newest fingerprint; ``fingerprint`` (C,) stands
        in for its readings, not for its time."""
        read = slots.latest[slot] if fingerprint is None else fingerprint
        residents = self._by_node.get(node_id)
        when = float(slots.taken_at[slot])
        taken_at = None if math.isnan(when) else when
        present, pressures, spreads, awake = [], [], [], []
        for resident in (residents or {}).values():
            its = environment.phase(resident, taken_at)
            if its is Phase.ABSENT:
                continue
            here = resident.domain == slots.domain[slot]
            placement = catalog.placement(resident.app, resident.placement)
            pressure = _pressure(
                resident.app, placement, here, int(slots.suite[slot]), catalog, columns
            )
            present.append(Present(resident, its, placement, pressure.known, here))
            pressures.append(fitted(pressure.slowed, slots.width))
            spreads.append(fitted(pressure.spread, slots.width))
            awake.append(0.0 if its is Phase.REMOVED else pressure.awake)
        if not present:
            nobody = np.empty((0, slots.width))
            noise = np.zeros(slots.width, dtype=np.float32)
            nowhere = np.full(2, math.nan)
            return Company(
                (),
                read.copy(),
                nobody,
                noise,
                nobody.astype(np.float32),
                nowhere,
                np.empty((0, 2)),
            )
        meet = environment.met(
            read,
            slots.idle[slot],
            [member.phase for member in present],
            np.array(pressures),
            np.array(spreads),
        )
        at = np.array([float(member.here) for member in present])
        shares = awake_shares.pairs(np.array(awake), at)
        alone = all(member.phase is Phase.REMOVED for member in present)
        return Company(
            tuple(present),
            meet.newcomer,
            meet.each,
            meet.noise.astype(np.float32),
            meet.each_noise.astype(np.float32),
            np.full(2, math.nan) if alone else together(shares),
            awake_shares.of_others(shares),
        )

    def _drop(self, assignment_id: str) -> None:
        node = self._node_of.pop(assignment_id)
        del self._by_node[node][assignment_id]
        if not self._by_node[node]:
            del self._by_node[node]


def _pressure(
    app: str, placement: str, here: bool, suite: int, catalog: Catalog, columns: Columns
) -> Pressure:
    """Return what one inflicts on a slot. From another last-level cache domain that is its
    signature across sockets; where there is none, the part of its own on what the domains share."""
    own = catalog.pressure(app, placement, suite)
    if here:
        return own
    across = catalog.pressure(app, awake_shares.ACROSS, suite)
    if across.known:
        return across
    shared = columns.devices()[: len(own.slowed)]
    return Pressure(own.row, np.where(shared, own.slowed, 0.0), own.spread, known=own.known)


class ResidentTable:
    """Active residents as arrays, for sums over all slots at once.

    ``slot`` (m,) is where each is (-1 for a free row), ``model`` its row in the matrix (0 where
    it has no model in service), ``met`` (m, C) the log seconds per operation that it meets,
    ``noise`` (m, C) the part of these that may be noise (``Company``), ``awake``
    the share of time in which others there keep a CPU awake, ``now`` its log slowdown there (NaN
    until worked out).
    """

    def __init__(self, width: int) -> None:
        self.count = 0
        self.slot = np.full(64, -1, dtype=np.int64)
        self.model = np.zeros(64, dtype=np.int64)
        self.now = np.full(64, math.nan)
        self.awake = np.zeros(64)
        self.met = np.zeros((64, width))
        self.noise = np.zeros((64, width), dtype=np.float32)
        self._rows: dict[int, list[int]] = {}
        self._free: list[int] = []
        self._counts = np.zeros(64, dtype=np.int64)

    def replace(
        self,
        slot: int,
        met: Floats,
        noise: NDArray[np.float32],
        awake: Floats,
        models: Sequence[int],
    ) -> None:
        """Those of one slot, ``met`` and ``noise`` (n, C), ``awake`` (n,) and ``models`` of
        each."""
        rows = self._rows.pop(slot, [])
        self._count_up_to(slot + 1)
        self._counts[slot] = len(models)
        while len(rows) > len(models):
            row = rows.pop()
            self.slot[row] = -1
            self.model[row] = 0
            self._free.append(row)
        while len(rows) < len(models):
            rows.append(self._take())
        if not rows:
            return
        if met.shape[1] > self.met.shape[1]:
            self.met = _widened(self.met, met.shape[1], math.nan)
            self.noise = _widened(self.noise, met.shape[1], 0.0)
        self._rows[slot] = rows
        self.slot[rows] = slot
        self.model[rows] = models
        self.met[rows] = met
        self.noise[rows] = noise
        self.awake[rows] = awake
        self.now[rows] = math.nan

    def rows(self, slot: int) -> list[int]:
        return self._rows.get(slot, [])

    def waiting(self) -> NDArray[np.intp]:
        """Rows whose ``now`` is to be worked out."""
        n = self.count
        return np.flatnonzero(np.isnan(self.now[:n]) & (self.slot[:n] >= 0) & (self.model[:n] > 0))

    def sums(self, slots: int, values: Floats) -> Floats:
        """(slots,): ``values`` by the row of the model (0 for none), added up over residents."""
        n = self.count
        # Free rows, at -1, are counted before the first slot.
        where = self.slot[:n] + 1
        added = np.bincount(where, weights=values[self.model[:n]], minlength=slots + 1)[1:]
        return np.asarray(added, dtype=np.float64)

    def counts(self, slots: int) -> NDArray[np.int64]:
        """(slots,): how many are there."""
        self._count_up_to(slots)
        return self._counts[:slots]

    def unmodelled(self, slots: int) -> NDArray[np.bool_]:
        """(slots,): whether any of those that are there has no model in service."""
        n = self.count
        where = self.slot[:n][(self.slot[:n] >= 0) & (self.model[:n] == 0)]
        return np.asarray(np.bincount(where, minlength=slots)[:slots] > 0, dtype=np.bool_)

    def greatest(self, slots: int, values: Floats) -> Floats:
        """(slots,): the greatest ``now`` plus ``values``, by model; 0 without residents."""
        n = self.count
        # Of slots that came since, nothing is asked.
        there = (self.slot[:n] >= 0) & (self.slot[:n] < slots)
        most = np.zeros(slots)
        after = np.nan_to_num(self.now[:n]) + values[self.model[:n]]
        np.maximum.at(most, self.slot[:n][there], after[there])
        return most

    def _count_up_to(self, slots: int) -> None:
        missing = slots - len(self._counts)
        if missing > 0:
            more = np.zeros(max(missing, growth(len(self._counts))), dtype=np.int64)
            self._counts = np.concatenate([self._counts, more])

    def _take(self) -> int:
        if self._free:
            return self._free.pop()
        if self.count == len(self.slot):
            more = growth(len(self.slot))
            self.slot = np.concatenate([self.slot, np.full(more, -1, dtype=np.int64)])
            self.model = np.concatenate([self.model, np.zeros(more, dtype=np.int64)])
            self.now = np.concatenate([self.now, np.full(more, math.nan)])
            self.awake = np.concatenate([self.awake, np.zeros(more)])
            room = np.zeros((more, self.met.shape[1]))
            self.met = np.concatenate([self.met, room])
            self.noise = np.concatenate([self.noise, room.astype(np.float32)])
        self.count += 1
        return self.count - 1


def _widened(rows: NDArray[_Float], width: int, filling: float) -> NDArray[_Float]:
    """Return ``rows`` (n, C) with ``filling`` up to ``width`` columns."""
    wider = np.full((len(rows), width), filling, dtype=rows.dtype)
    wider[:, : rows.shape[1]] = rows
    return wider
