"""Predictions of every application in service on every slot, and the slowdowns they inflict.

Rows are models, columns slots. An entry says which version of its slot it was worked out for, so
that what has changed is found by comparing, and is worked out later, many slots at a time.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kongming.arrays import Floats, growth
from kongming.engine import awake_shares, scoring
from kongming.engine.catalog import Catalog
from kongming.engine.columns import fitted
from kongming.engine.scoring import Served
from kongming.engine.slots import ANY_SUITE, Slots

_NEVER = 0


@dataclass(frozen=True, eq=False, slots=True)
class Environments:
    """Contents of the slots ``chosen`` (n,), copied together once for however many models: ``met``
    and ``slowed`` (n, C), ``awake`` (n, 2), the others (n,)."""

    chosen: NDArray[np.intp]
    met: Floats
    slowed: Floats
    awake: Floats
    node: NDArray[np.int32]
    suite: NDArray[np.int32]
    version: NDArray[np.int32]
    referenced: NDArray[np.bool_]

    @classmethod
    def of(cls, slots: Slots, chosen: NDArray[np.intp], width: int) -> Environments:
        """``width`` is how many columns there are: arrays have some to spare."""
        return cls(
            chosen,
            slots.met[chosen, :width],
            slots.slowed[chosen, :width],
            slots.awake[chosen],
            slots.node[chosen],
            slots.suite[chosen],
            slots.version[chosen],
            slots.has_reference(chosen),
        )


class Matrix:
    """``log_slowdown`` (rows, slots) is NaN where a model cannot say; ``filled`` says where it says
    so by readings that were filled in."""

    def __init__(self) -> None:
        self._shape = (0, 0)
        self.log_slowdown = np.empty(self._shape, dtype=np.float32)
        self.error = np.empty(self._shape, dtype=np.float32)
        self.outside = np.empty(self._shape, dtype=np.bool_)
        self.limit = np.empty(self._shape, dtype=np.float32)
        self.at_least = np.empty(self._shape, dtype=np.bool_)
        self.variant = np.empty(self._shape, dtype=np.int8)
        self.filled = np.empty(self._shape, dtype=np.bool_)
        self.done = np.empty(self._shape, dtype=np.int32)

    def fit(self, rows: int, slots: int) -> None:
        """Make room for so many rows and slots."""
        old_rows, old_slots = self._shape
        if rows <= old_rows and slots <= old_slots:
            return
        shape = (_room(rows, old_rows), _room(slots, old_slots))
        for name, filling in (
            ("log_slowdown", math.nan),
            ("error", 0.0),
            ("outside", 0),
            ("limit", 0.0),
            ("at_least", 0),
            ("variant", 0),
            ("filled", 0),
            ("done", _NEVER),
        ):
            old = getattr(self, name)
            # Zeros that nobody has written to take no memory.
            new = np.full(shape, filling, old.dtype) if filling else np.zeros(shape, old.dtype)
            new[:old_rows, :old_slots] = old
            setattr(self, name, new)
        self._shape = shape

    def forget(self, row: int) -> None:
        """The model of this row has changed, or is gone."""
        if row < self._shape[0]:
            self.done[row] = _NEVER
            self.log_slowdown[row] = math.nan

    def lagging(self, row: int, slots: Slots) -> NDArray[np.intp]:
        """Slots whose entry in this row is of another version than the slot."""
        n = slots.count
        return np.flatnonzero((self.done[row, :n] != slots.version[:n]) & slots.ready[:n])

    def update(self, model: Served, environments: Environments, own_node: int) -> None:
        """Work out entries of one row; ``own_node`` is the number of the node that the model was
        trained on, -1 where that is not in service."""
        chosen, suite = environments.chosen, environments.suite
        scores = scoring.score(
            model,
            environments.met,
            environments.slowed,
            environments.referenced & (environments.node != own_node),
            environments.awake[:, awake_shares.counted(model.file.placement)],
        )
        row = model.row
        other = (suite != model.suite) & (suite != ANY_SUITE)
        # Times of another node mean nothing to the model unless they are slowdowns.
        other |= ~environments.referenced & (environments.node != own_node)
        scores.log_slowdown[other] = math.nan
        scores.variant[other] = scoring.NEITHER
        self.log_slowdown[row, chosen] = scores.log_slowdown
        self.error[row, chosen] = scores.error
        self.outside[row, chosen] = scores.outside
        self.limit[row, chosen] = scores.limit
        self.at_least[row, chosen] = scores.at_least
        self.variant[row, chosen] = scores.variant
        self.filled[row, chosen] = scores.filled
        self.done[row, chosen] = environments.version


def carried(chosen: NDArray[np.intp], slots: Slots, own_node: int) -> NDArray[np.bool_]:
    """Return whether an environment is carried to the model's node as slowdowns over its own
    reference: it is of another node, and has one."""
    return np.asarray(
        (slots.node[chosen] != own_node) & slots.has_reference(chosen), dtype=np.bool_
    )


class HarmTable:
    """Log slowdown that each application adds to that of each other one on an idle node.

    A newcomer whose signature is not known has the row of a typical one of its placement, or row 0
    where nobody was profiled there; column 0 is a resident without a model, which is taken to be
    slowed as its surrogates are on average. On a loaded node it is an estimate, with which the few
    places are found that are then worked out in full.
    """

    def __init__(self) -> None:
        self._generation = -1
        self._columns: dict[int, Served] = {}
        self._pressures: Floats = np.zeros((1, 1))
        self._awake: Floats = np.zeros(1)
        self.added = np.zeros((1, 1), dtype=np.float32)

    def wanting(self, catalog: Catalog) -> list[Served]:
        """Models whose column is not worked out yet; starts again where signatures changed."""
        if self._generation != catalog.generation:
            self._restart(catalog)
        return [m for m in catalog.all_served() if self._columns.get(m.row) is not m]

    def update(self, model: Served) -> None:
        pressures = self._pressures
        if model.width() > pressures.shape[1]:
            pressures = np.array([fitted(pressure, model.width()) for pressure in pressures])
        everywhere = np.ones(len(pressures), dtype=np.bool_)
        there = scoring.score(model, pressures, pressures, everywhere, self._awake).log_slowdown
        nothing = np.zeros_like(pressures[:1])
        idle = scoring.score(model, nothing, nothing, everywhere[:1], np.zeros(1)).log_slowdown[0]
        # That a program which waits gains by a newcomer is no reason to put one there.
        added = np.maximum(there - idle, 0.0)
        self.added[:, model.row] = np.where(np.isnan(added), self.added[:, 0], added)
        self._columns[model.row] = model

    def _restart(self, catalog: Catalog) -> None:
        known = [p for by_suite in catalog.pressures().values() for p in by_suite.values()]
        known += [catalog.flat(), *catalog.typicals()]
        models = list(catalog.all_served())
        rows = 1 + max(pressure.row for pressure in known)
        columns = 1 + max((m.row for m in models), default=0)
        width = max(1, *(len(pressure.slowed) for pressure in known))
        pressures = np.zeros((rows, width))
        awake = np.zeros(rows)
        for pressure in known:
            pressures[pressure.row] = fitted(pressure.slowed, width)
            awake[pressure.row] = pressure.awake
        same = (
            pressures.shape == self._pressures.shape
            and np.array_equal(pressures, self._pressures, equal_nan=True)
            and np.array_equal(awake, self._awake)
        )
        if not same:
            self._columns.clear()
        self._pressures, self._awake = pressures, awake
        general = _means(pressures)
        before, self.added = self.added, np.tile(general[:, None], (1, columns)).astype(np.float32)
        unchanged = {model.row for model in models if self._columns.get(model.row) is model}
        self._columns = {row: model for row, model in self._columns.items() if row in unchanged}
        for row in unchanged:
            self.added[:, row] = before[:, row]
        self._generation = catalog.generation

    def of(self, pressure_row: int) -> NDArray[np.float32]:
        """(models + 1,) what this newcomer adds to each resident's log slowdown."""
        return np.asarray(self.added[pressure_row if pressure_row < len(self.added) else 0])


def _means(pressures: Floats) -> Floats:
    known = ~np.isnan(pressures)
    total = np.sum(np.where(known, pressures, 0.0), axis=1)
    return np.asarray(total / np.maximum(known.sum(axis=1), 1), dtype=np.float64)


def _room(wanted: int, had: int) -> int:
    return had if wanted <= had else max(wanted, had + growth(had))
