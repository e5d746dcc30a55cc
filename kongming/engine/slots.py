"""The readings of every last-level cache domain in service, as arrays with a row (slot) each.

A slot holds the idle reference, the newest fingerprint, a short history, and the environment that
follows from them and from who runs there. All in log seconds per operation, NaN for no reading.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from kongming.arrays import Floats, growth
from kongming.engine import movement
from kongming.engine.columns import MOST_COLUMNS, fitted
from kongming.engine.environment import LARGEST_LOG
from kongming.engine.movement import Movement
from kongming.engine.settings import Settings

_FIRST_ROWS = 64
_FIRST_WIDTH = 48


ANY_SUITE = -1
"""The code of a reference whose suite version is unknown: it is taken to fit."""


class Slots:
    """Slots count up from 0 and are used again when a node is dropped. ``width`` is the number
    of columns that every vector here has.

    ``idle`` is NaN where there is no reference of the suite that the newest fingerprint is of;
    where ``lenders`` is above 0 it was taken from so many like nodes' references.
    ``met`` is what a newcomer would meet, ``slowed`` the same over ``idle``; ``guessed`` says
    that pressures which merely stand in are in both, ``awake`` (n, 2) are pairs of
    ``awake_shares``. ``taken_at`` is NaN where ``latest`` is the idle reference itself.
    ``version`` counts every change.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._free: list[int] = []
        self._references: list[dict[int, Floats]] = []
        self._movements: list[Movement] = []
        self._default = movement.default_movement(settings.default_movement)
        self.count = 0
        self.width = _FIRST_WIDTH
        rows = _FIRST_ROWS
        self.node = np.full(rows, -1, dtype=np.int32)
        self.domain = np.zeros(rows, dtype=np.int32)
        self.suite = np.full(rows, -1, dtype=np.int32)
        self.version = np.ones(rows, dtype=np.int32)
        self.ready = np.zeros(rows, dtype=np.bool_)
        self.taken_at = np.full(rows, math.nan)
        self.ttl_s = np.full(rows, settings.ttl_s)
        self.general = np.full(rows, math.nan)
        self.awake = np.full((rows, 2), math.nan)
        self.guessed = np.zeros(rows, dtype=np.bool_)
        self.idle = np.full((rows, self.width), math.nan)
        self.latest = np.full((rows, self.width), math.nan)
        self.met = np.full((rows, self.width), math.nan)
        self.slowed = np.full((rows, self.width), math.nan)
        self.history = np.full((rows, settings.history, self.width), math.nan, dtype=np.float32)
        self.history_at = np.full((rows, settings.history), math.nan)
        self.history_count = np.zeros(rows, dtype=np.int64)
        self.lenders = np.zeros(rows, dtype=np.int32)

    def add(self, node: int, domain: int) -> int:
        """A slot for a domain of which nothing is known yet."""
        if self._free:
            slot = self._free.pop()
        else:
            slot = self.count
            self.count += 1
            if self.count > len(self.node):
                self._grow_rows()
            self._references.append({})
            self._movements.append(self._default)
        self.node[slot], self.domain[slot] = node, domain
        return slot

    def drop(self, slot: int) -> None:
        self.node[slot] = -1
        self.suite[slot] = -1
        self.ready[slot] = self.guessed[slot] = False
        self.history_count[slot] = self.lenders[slot] = 0
        self.ttl_s[slot] = self._settings.ttl_s
        for array in (self.idle, self.latest, self.met, self.slowed, self.history, self.history_at):
            array[slot] = math.nan
        self.taken_at[slot] = self.general[slot] = self.awake[slot] = math.nan
        self.version[slot] += 1
        self._references[slot] = {}
        self._movements[slot] = self._default
        self._free.append(slot)

    def put_reference(self, slot: int, logs: Floats, suite: int) -> None:
        """``logs`` of the idle node, by a suite version (code, or ``ANY_SUITE``). The newest one
        counts."""
        vector = self._vector(logs)
        if suite == ANY_SUITE:
            self._references[slot].clear()
        self._references[slot][suite] = vector
        if not self.ready[slot] or math.isnan(self.taken_at[slot]):
            # Nothing has been read under load: the idle node is what is known of it.
            self.latest[slot] = vector
            self.suite[slot] = suite
            self.ready[slot] = True
        if suite in (self.suite[slot], ANY_SUITE):
            self.idle[slot] = vector
            self.lenders[slot] = 0
        self.version[slot] += 1

    def put_fingerprint(
        self, slot: int, logs: Floats, suite: int, taken_at: float, *, history: bool
    ) -> bool:
        """Put a fingerprint; return whether it is the newest; an older one that is delivered late
        only joins the history."""
        vector = self._vector(logs)
        newest = not taken_at < self.taken_at[slot]
        # A reading that is newer than all others cannot be one that is delivered again.
        again = not taken_at > self.taken_at[slot] and taken_at in self.history_at[slot]
        if history and not again and (newest or suite == self.suite[slot]):
            self._remember(slot, vector, suite, taken_at)
        if not newest:
            return False
        if self.suite[slot] != suite:
            self.suite[slot] = suite
            reference = self.reference(slot, suite)
            self.idle[slot] = math.nan if reference is None else reference
            self.lenders[slot] = 0
        self.latest[slot] = vector
        self.taken_at[slot] = taken_at
        self.ready[slot] = True
        self.version[slot] += 1
        return True

    def reference(self, slot: int, suite: int) -> Floats | None:
        """(C,) of the idle node, or None."""
        references = self._references[slot]
        reference = references.get(suite, references.get(ANY_SUITE))
        return None if reference is None else fitted(reference, self.width)

    def lend(self, slot: int, votes: Sequence[Sequence[Floats]]) -> None:
        """Take other nodes' references (C,) for its own, which is not known: the median over
        ``votes``, each the median of one or more nodes of one holder, who has one vote however
        many nodes he has."""
        self.lenders[slot] = sum(map(len, votes))
        self.idle[slot] = math.nan
        if votes:
            self.idle[slot] = self._median([self._median(vote) for vote in votes])

    def _median(self, vectors: Sequence[Floats]) -> Floats:
        """(C,) median of what is known of each surrogate."""
        if len(vectors) == 1:
            return fitted(vectors[0], self.width)
        known = np.array([fitted(vector, self.width) for vector in vectors])
        some = ~np.isnan(known).all(axis=0)
        median = np.full(self.width, math.nan)
        median[some] = np.nanmedian(known[:, some], axis=0)
        return median

    def fastest(self, slot: int) -> Floats | None:
        """(C,) the least of each surrogate over the history; None with fewer than two
        fingerprints."""
        n = min(int(self.history_count[slot]), self._settings.history)
        if n < 2:
            return None
        return np.asarray(np.fmin.reduce(self.history[slot, :n], axis=0), dtype=np.float64)

    def movement(self, slot: int) -> Movement:
        return self._movements[slot]

    def median(self, slot: int) -> Floats | None:
        """(C,) median over the history; None with fewer than two fingerprints."""
        n = min(int(self.history_count[slot]), self._settings.history)
        if n < 2:
            return None
        return self._median(list(self.history[slot, :n].astype(np.float64)))

    def set_met(self, slot: int, met: Floats, awake: Floats, *, guessed: bool) -> None:
        """The environment that follows for a newcomer, (C,), the shares of time in which residents
        keep a CPU awake, (2,), NaN without any, and whether it is ``guessed``."""
        self.met[slot] = met
        self.awake[slot] = awake
        self.guessed[slot] = guessed
        slowed = np.clip(met - self.idle[slot], -LARGEST_LOG, LARGEST_LOG)
        self.slowed[slot] = slowed
        known = slowed[~np.isnan(slowed)]
        self.general[slot] = known.mean() if len(known) else math.nan

    def has_reference(self, slots: NDArray[np.intp]) -> NDArray[np.bool_]:
        return np.asarray(~np.isnan(self.general[slots]), dtype=np.bool_)

    def widen(self, columns: int) -> None:
        """Make room for so many columns."""
        while self.width < min(columns, MOST_COLUMNS):
            wider = min(2 * self.width, MOST_COLUMNS)
            for name in ("idle", "latest", "met", "slowed", "history"):
                old = getattr(self, name)
                new = np.full((*old.shape[:-1], wider), math.nan, dtype=old.dtype)
                new[..., : self.width] = old
                setattr(self, name, new)
            self.width = wider

    def clear(self, slot: int, places: Sequence[int]) -> None:
        """Forget what was read of these surrogates."""
        for vector in self._vectors(slot):
            vector[..., [place for place in places if place < vector.shape[-1]]] = math.nan
        self.version[slot] += 1

    def move(self, slot: int, place: int, to: int) -> None:
        """Move what was read of a surrogate to another place."""
        references = self._references[slot]
        for suite, reference in references.items():
            references[suite] = fitted(reference, self.width)
        for vector in self._vectors(slot):
            vector[..., to] = vector[..., place]
            vector[..., place] = math.nan
        self.version[slot] += 1

    def _vectors(self, slot: int) -> list[Floats]:
        arrays = (self.idle, self.latest, self.met, self.slowed, self.history)
        return [*(array[slot] for array in arrays), *self._references[slot].values()]

    def _vector(self, logs: Floats) -> Floats:
        self.widen(len(logs))
        return fitted(logs, self.width)

    def _remember(self, slot: int, vector: Floats, suite: int, taken_at: float) -> None:
        if self.suite[slot] != suite:
            self.history_count[slot] = 0
            self.history_at[slot] = math.nan
        size = self._settings.history
        place = int(self.history_count[slot]) % size
        self.history[slot, place] = vector
        self.history_at[slot, place] = taken_at
        self.history_count[slot] += 1
        n = min(int(self.history_count[slot]), size)
        learnt = movement.learn(
            self.history_at[slot, :n], self.history[slot, :n].astype(np.float64), self._default
        )
        self._movements[slot] = learnt
        settings = self._settings
        if learnt.learnt:
            allowed = learnt.time_to(settings.ttl_movement)
            self.ttl_s[slot] = min(max(allowed, settings.least_ttl_s), settings.most_ttl_s)
        else:
            self.ttl_s[slot] = settings.ttl_s

    def _grow_rows(self) -> None:
        had = len(self.node)
        more = growth(had)
        for name, filling in _FILLINGS:
            old = getattr(self, name)
            added = np.full((more, *old.shape[1:]), filling, dtype=old.dtype)
            setattr(self, name, np.concatenate([old, added]))
        self.ttl_s[had:] = self._settings.ttl_s


_FILLINGS: Sequence[tuple[str, float]] = (
    ("node", -1),
    ("domain", 0),
    ("suite", -1),
    ("version", 1),
    ("ready", 0),
    ("taken_at", math.nan),
    ("ttl_s", 0.0),
    ("general", math.nan),
    ("awake", math.nan),
    ("guessed", 0),
    ("idle", math.nan),
    ("latest", math.nan),
    ("met", math.nan),
    ("slowed", math.nan),
    ("history", math.nan),
    ("history_at", math.nan),
    ("history_count", 0),
    ("lenders", 0),
)
"""The arrays that grow with the slots, and what a new row holds."""
