"""Live cluster state with lazy recomputation.

Updates only mark the affected slots dirty. A dirty slot is recomputed by the next query that reads
it, so that a burst of assignments is reflected in the very next ranking and does not pile up on
one node; new fingerprints are worked out by ``refresh``.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Mapping

import numpy as np
from numpy.typing import NDArray

from kongming.arrays import Floats
from kongming.engine import awake_shares, environment, scoring, standing_in
from kongming.engine.catalog import Catalog, Pressure
from kongming.engine.columns import Columns, fitted, fitted_rows
from kongming.engine.lag import Lag
from kongming.engine.nodes import MOST_DOMAINS, Nodes, NodeView
from kongming.engine.references import References
from kongming.engine.residents import Company, Residents, ResidentTable
from kongming.engine.score_matrix import Environments, HarmTable, Matrix
from kongming.engine.scoring import Served
from kongming.engine.settings import Purpose, Settings
from kongming.engine.slots import ANY_SUITE, Slots
from kongming.learning.awake import together
from kongming.learning.model_file import ModelFile
from kongming.records.errors import InputError, UnknownNameError
from kongming.records.fingerprint import Fingerprint, NodeFacts
from kongming.records.moments import unix
from kongming.records.resident import Resident
from kongming.records.run import Signature
from kongming.steps import Steps

_AT_ONCE = 1024
"""Slots of one model that are worked out before the clock is looked at."""

_BUILT_AT_ONCE = 64
"""Slots whose company is worked out in one step of an answer."""

_URGENT_AT_ONCE = 512
"""Changed assignments that one question works out at the most."""

_NO_NODE, _NO_SUITE = -2, -2
"""What no slot has: for residents without a model."""


class FleetState:
    """Nodes, readings, assignments, models and signatures, with the matrix over them."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.columns = Columns(self._column_moved)
        self.slots = Slots(settings)
        self.nodes = Nodes(settings)
        self.residents = Residents()
        self.table = ResidentTable(self.slots.width)
        self.catalog = Catalog(self.columns, self._node_idle, settings.unknown_pressure)
        self.matrix = Matrix()
        self.harm = HarmTable()
        self._companies: dict[int, Company] = {}
        self._references = References(self.slots, self.columns)
        self._lag = Lag()
        self.generation = 0
        """Another one since places or rows may mean others: a node or a model went, or is new."""
        self._concerned: set[str] = set()
        self._all_concerned = False
        self._pressure_moves = 0
        self._turn = 0
        self._impacts_lag = False

    # What arrives.

    def put_node(self, facts: NodeFacts) -> NodeView:
        if len(facts.llc_cpus) > MOST_DOMAINS:
            raise InputError(
                "has too many last-level cache domains.",
                field="node.llc_domains",
                value=len(facts.llc_cpus),
                allowed=f"up to {MOST_DOMAINS}",
            )
        view = self.nodes.put(facts)
        self._count_memory(view)
        return view

    def drop_node(self, node_id: str) -> None:
        view = self.nodes.drop(node_id)
        self.generation += 1
        for slot in () if view is None else view.slots.values():
            self.slots.drop(slot)
            self._companies.pop(slot, None)
            self._references.drop(slot)
            nobody = np.empty((0, self.slots.width))
            self.table.replace(slot, nobody, nobody.astype(np.float32), np.empty(0), [])
            self._lag.drop(slot)

    def put_reference(
        self,
        node_id: str,
        domain: int,
        times: Fingerprint | Mapping[str, float],
        suite: str | None,
        by: str = "",
    ) -> None:
        view = self._view(node_id)
        families: dict[str, str] = {}
        if isinstance(times, Fingerprint):
            suite = times.suite_version
            families = _families(times)
            times = times.times()
        self._hold(view, by)
        slot = self._slot(view, domain)
        code = ANY_SUITE if suite is None else self.catalog.suite(suite)
        self._references.put(view, slot, self.columns.logs(times, families, by), code)
        self._lag.changed(slot)
        self.catalog.reference_changed(node_id)

    def put_fingerprint(
        self,
        node_id: str,
        domain: int,
        fingerprint: Fingerprint,
        purpose: Purpose,
        now: float,
        by: str = "",
    ) -> bool:
        view = self.nodes.get(node_id) or self.put_node(fingerprint.node)
        # The middle of its window: whoever came or went within it was there for about half.
        taken_at = min(unix(fingerprint.started_at) + fingerprint.elapsed_s / 2.0, now)
        if purpose is Purpose.REFERENCE:
            self.put_reference(node_id, domain, fingerprint, None, by)
        self._hold(view, by)
        slot = self._slot(view, domain)
        newest = self.slots.put_fingerprint(
            slot,
            self.columns.logs(fingerprint.times(), _families(fingerprint), by),
            self.catalog.suite(fingerprint.suite_version),
            taken_at,
            history=purpose is not Purpose.ESTIMATE,
        )
        self.nodes.saw(view, taken_at)
        if newest:
            self._references.borrow(view, slot)
            self._lag.changed(slot, now if math.isfinite(now) else taken_at)
            if self.residents.on(node_id):
                times = self.slots.taken_at[list(view.slots.values())].tolist()
                self.residents.forget_absent(node_id, [None if t != t else t for t in times])
        return newest

    def put_model(self, file: ModelFile, version: int, in_service: bool) -> None:
        served = self.catalog.put_model(file, version, in_service=in_service)
        if served is not None:
            self._model_changed(served.row, file.app)

    def promote(self, app: str, placement: str, version: int) -> None:
        served = self.catalog.promote(app, placement, version)
        if served is not None:
            self._model_changed(served.row, app)

    def drop_model(self, app: str, placement: str, version: int) -> None:
        row = self.catalog.drop_model(app, placement, version)
        if row is not None:
            self._model_changed(row, app)
        elif (left := self.catalog.served(app, placement)) is not None:
            self._model_changed(left.row, app)

    def put_signatures(self, signatures: Iterable[Signature]) -> None:
        if self.catalog.put_signatures(signatures):
            self._all_concerned = True

    def drop_signatures(self, app: str, placement: str) -> None:
        self.catalog.drop_signatures(app, placement)
        self._all_concerned = True

    def put_assignment(self, resident: Resident) -> None:
        before = self.residents.find(resident.assignment_id)
        if before == resident:
            return
        self.residents.put(resident)
        for node_id in {resident.node_id, before.node_id if before else resident.node_id}:
            view = self.nodes.get(node_id)
            if view is not None:
                self._count_memory(view)
                self._touch(view)

    # What is known.

    def reference(self, node_id: str, domain: int) -> Mapping[str, float] | None:
        """Seconds per operation on the idle node; None without a reference of its own."""
        view = self.nodes.get(node_id)
        slot = None if view is None else view.slots.get(domain)
        if view is None or slot is None:
            return None
        return self._references.times(view, slot)

    def company(self, slot: int) -> Company:
        """Return who matters to a slot, as things are."""
        self._spread_changes()
        if slot in self._lag.dirty or slot not in self._companies:
            self._rebuild(slot)
        return self._companies[slot]

    def own_node(self, model: Served) -> int:
        return self.nodes.number_of(model.file.node_id)

    def is_of_type(self, view: NodeView, model: Served) -> bool | None:
        """Return whether a node has the CPU model and caches of the node that a model was trained
        on; None where that one is not known."""
        if view.facts.id == model.file.node_id:
            return True
        home = self.nodes.get(model.file.node_id)
        return None if home is None else home.hardware == view.hardware

    def is_carried(self, slot: int, model: Served) -> bool:
        """Return whether the slot's environment counts by slowdowns over its own reference."""
        away = self.slots.node.item(slot) != self.own_node(model)
        return away and not math.isnan(self.slots.general.item(slot))

    def is_readable(self, slot: int, model: Served) -> bool:
        """Return whether the slot's environment means anything to the model: it is of the model's
        own node, or there is a reference that it can be carried over."""
        at_home = self.slots.node.item(slot) == self.own_node(model)
        return at_home or self.is_carried(slot, model)

    def is_judged(self, slot: int, model: Served) -> bool:
        """Return whether the model can say anything of the slot: it is readable, and was read with
        the suite of the model."""
        suite = self.slots.suite.item(slot)
        return suite in (model.suite, ANY_SUITE) and self.is_readable(slot, model)

    def baseline(self, slot: int) -> Floats:
        """(C,) what slowdowns there are over: the idle node, or where that is not known the fastest
        readings of its history; NaN without either."""
        is_known = self.slots.has_reference(np.array([slot]))[0]
        fastest = None if is_known else self.slots.fastest(slot)
        return self.slots.idle[slot] if fastest is None else fastest

    # Freshness.

    def bring_up(self, model: Served | None) -> Steps[None]:
        """Recompute, in steps, what assignments have changed, for one model."""
        self._spread_changes()
        urgent = list(self._lag.urgent)[:_URGENT_AT_ONCE]
        for number, slot in enumerate(urgent, 1):
            if slot in self._lag.dirty:
                self._rebuild(slot)
            if number % _BUILT_AT_ONCE == 0:
                yield
        if model is None:
            for slot in [slot for slot in self._lag.dirty if slot not in self._companies]:
                self._rebuild(slot)
        self._fit()
        if model is None:
            return
        if urgent:
            self._work_out(model, np.array(urgent, dtype=np.intp))
        # A model or a node that has come this moment: the first question must not miss it.
        n = self.slots.count
        never = np.flatnonzero((self.matrix.done[model.row, :n] == 0) & self.slots.ready[:n])
        if len(never):
            for slot in self._lag.dirty.intersection(never.tolist()):
                self._rebuild(slot)
            self._work_out(model, never)

    def entry(self, model: Served, slot: int) -> float:
        """The log slowdown of one entry of the matrix, worked out now where it lags; of a model
        that is not in service, and has no row there, by itself. NaN where it cannot say."""
        self.company(slot)
        self._fit()
        if model.row < 0:
            return self._unserved_entry(model, slot)
        self._work_out(model, np.array([slot], dtype=np.intp))
        return float(self.matrix.log_slowdown[model.row, slot])

    def _unserved_entry(self, model: Served, slot: int) -> float:
        if not self.is_judged(slot, model):
            return math.nan
        place = self._environments(np.array([slot], dtype=np.intp))
        is_carried = np.array([self.is_carried(slot, model)])
        awake = place.awake[:, awake_shares.counted(model.file.placement)]
        scores = scoring.score(model, place.met, place.slowed, is_carried, awake)
        return float(scores.log_slowdown[0])

    def refresh(self, now: float, budget_s: float) -> float:
        """Work out what lags, for about ``budget_s``; returns what it lags by then, in seconds."""
        self._lag.look_at_clock(now)
        done = self._refresh(time.perf_counter() + budget_s)
        if done:
            self._lag.clear()
            return 0.0
        self._settle()
        return self.staleness_s(now)

    @property
    def lagging(self) -> bool:
        """Return whether anything is left for ``refresh``: of the matrix, or what residents
        meet."""
        return bool(self._lag) or self._impacts_lag

    def staleness_s(self, now: float) -> float:
        """Return how many seconds the matrix may lag behind what has arrived."""
        return self._lag.staleness_s(now)

    def _refresh(self, deadline: float) -> bool:
        self._spread_changes()
        for n, slot in enumerate(list(self._lag.dirty)):
            self._rebuild(slot)
            if n % 16 == 15 and time.perf_counter() > deadline:
                return False
        for model in self.harm.wanting(self.catalog):
            self.harm.update(model)
            if time.perf_counter() > deadline:
                return False
        self._fit()
        served = list(self.catalog.all_served())
        environments: Environments | None = None
        for _ in range(len(served)):
            # It goes on where it was interrupted: every model has its turn.
            self._turn = (self._turn + 1) % len(served)
            model = served[self._turn]
            lagging = self.matrix.lagging(model.row, self.slots)
            for start in range(0, len(lagging), _AT_ONCE):
                chosen = lagging[start : start + _AT_ONCE]
                # Most models lag in the same slots.
                if environments is None or not np.array_equal(environments.chosen, chosen):
                    environments = self._environments(chosen)
                self.matrix.update(model, environments, self.own_node(model))
                if time.perf_counter() > deadline:
                    return False
        return self._refresh_residents(deadline)

    def _refresh_residents(self, deadline: float) -> bool:
        waiting = self.table.waiting()
        waiting = waiting[np.argsort(self.table.model[waiting], kind="stable")]
        for start in range(0, len(waiting), _AT_ONCE):
            rows = waiting[start : start + _AT_ONCE]
            # One that no model can say anything of is not asked for again and again.
            self.table.now[rows] = np.nan_to_num(self.resident_logs(rows, None)[0])
            if time.perf_counter() > deadline:
                return False
        self._impacts_lag = False
        return True

    def resident_logs(
        self,
        rows: NDArray[np.intp],
        newcomer: Pressure | None,
        met: Floats | None = None,
        awake: Floats | None = None,
    ) -> tuple[Floats, NDArray[np.bool_]]:
        """(n,) log slowdown of residents by their rows in the table, NaN for one without a model,
        and whether each is the least. ``newcomer`` is the pressure of one who would join each;
        ``met`` (n, C) and ``awake`` (n,) stand in for what the table has."""
        table, slots = self.table, self.slots
        # Those of one model stand together, so that each model is asked once, of a slice.
        order = np.argsort(table.model[rows], kind="stable")
        rows = rows[order]
        kinds, where = table.model[rows], table.slot[rows]
        width = min(len(self.columns), slots.width)
        met = table.met[rows, :width] if met is None else met[order, :width]
        met = fitted_rows(met, width)
        awake = table.awake[rows] if awake is None else awake[order]
        if newcomer is not None:
            noise = fitted_rows(table.noise[rows, :width].astype(np.float64), width)
            pressure, spread = fitted(newcomer.slowed, width), fitted(newcomer.spread, width)
            met = met + environment.added(pressure, spread, noise)
            awake = together((awake, np.asarray(newcomer.awake)))
        slowed = met - slots.idle[where, :width]
        starts = np.flatnonzero(np.diff(kinds, prepend=-1))
        models = [self.catalog.at(kind) for kind in kinds[starts].tolist()]
        counts = np.diff(starts, append=len(rows))
        own = [_NO_NODE if model is None else self.own_node(model) for model in models]
        suites = [_NO_SUITE if model is None else model.suite for model in models]
        counted = slots.has_reference(where) & (slots.node[where] != np.repeat(own, counts))
        read = slots.suite[where]
        fits = (read == np.repeat(suites, counts)) | (read == ANY_SUITE)
        fits &= counted | (slots.node[where] == np.repeat(own, counts))
        logs = np.full(len(rows), math.nan)
        least = np.zeros(len(rows), dtype=np.bool_)
        for model, start, count in zip(models, starts.tolist(), counts.tolist(), strict=True):
            if model is not None:
                its = slice(start, start + count)
                logs[its], least[its] = scoring.log_slowdowns_and_bounds(
                    model, met[its], slowed[its], counted[its], awake[its]
                )
        log_slowdowns, at_least = np.empty(len(rows)), np.empty(len(rows), dtype=np.bool_)
        log_slowdowns[order] = np.where(fits, logs, math.nan)
        at_least[order] = fits & least
        return log_slowdowns, at_least

    def _settle(self) -> None:
        """Forget to wait for slots that all models have seen, though others still lag."""
        slots = np.array(self._lag.waiting(), dtype=np.intp)
        if not len(slots):
            return
        self._fit()
        rows = np.array([model.row for model in self.catalog.all_served()], dtype=np.intp)
        if len(rows):
            # The model whose turn is next has waited longest: few slots are left by it alone.
            next_row = rows[(self._turn + 1) % len(rows)]
            seen = self.matrix.done[next_row, slots] == self.slots.version[slots]
            slots = slots[seen | ~self.slots.ready[slots]]
        current = (self.matrix.done[np.ix_(rows, slots)] == self.slots.version[slots]).all(axis=0)
        for slot in slots[current | ~self.slots.ready[slots]].tolist():
            self._lag.seen(slot)

    def _work_out(self, model: Served, slots: NDArray[np.intp]) -> None:
        lag = (self.matrix.done[model.row, slots] != self.slots.version[slots]) & self.slots.ready[
            slots
        ]
        if lag.any():
            self.matrix.update(model, self._environments(slots[lag]), self.own_node(model))

    def _environments(self, slots: NDArray[np.intp]) -> Environments:
        return Environments.of(self.slots, slots, len(self.columns))

    def _rebuild(self, slot: int) -> None:
        self._lag.dirty.discard(slot)
        self.slots.widen(len(self.columns))
        view = self.nodes.at(int(self.slots.node[slot]))
        company = self.residents.company(
            self.slots, slot, view.facts.id, self.catalog, self.columns
        )
        self._companies[slot] = company
        guessed = bool(standing_in.for_newcomer(company))
        self.slots.set_met(slot, company.met, company.awake, guessed=guessed)
        here = company.here
        models = []
        for i in here:
            member = company.present[i]
            served = self.catalog.served(member.resident.app, member.placement)
            models.append(0 if served is None else served.row)
        each, noise = company.each[here], company.each_noise[here]
        self.table.replace(slot, each, noise, company.awake_for_those(here), models)
        self._impacts_lag = True

    def _fit(self) -> None:
        self.slots.widen(len(self.columns))
        self.matrix.fit(1 + self.catalog.rows, self.slots.count)

    def _view(self, node_id: str) -> NodeView:
        view = self.nodes.get(node_id)
        if view is None:
            raise UnknownNameError("node", node_id, None, hint="Its agent registers it.")
        return view

    def _slot(self, view: NodeView, domain: int) -> int:
        slot = view.slots.get(domain)
        if slot is None:
            domains = max(len(view.facts.llc_cpus), 1)
            if not 0 <= domain < domains:
                raise InputError(
                    "is no last-level cache domain of the node.",
                    field="domain",
                    value=domain,
                    allowed=f"0 to {domains - 1}",
                )
            slot = view.slots[domain] = self.slots.add(view.number, domain)
        return slot

    def _hold(self, view: NodeView, by: str) -> None:
        """Its readings are of these credentials from now on: to others, places of its own mean
        something else."""
        if view.by == by:
            return
        view.by = by
        own = self.columns.own_places()
        if own:
            for slot in view.slots.values():
                self.slots.clear(slot, own)
                self._lag.changed(slot)

    def _column_moved(self, by: str, place: int, to: int) -> None:
        """A surrogate that one agent alone had named has a place for all nodes."""
        self.slots.widen(len(self.columns))
        for view in self.nodes:
            if view.by == by:
                for slot in view.slots.values():
                    self.slots.move(slot, place, to)
                    self._lag.changed(slot)

    def _touch(self, view: NodeView) -> None:
        """The node's assignments have changed."""
        for slot in view.slots.values():
            self.slots.version[slot] += 1
            self._lag.reassigned(slot)

    def _model_changed(self, row: int, app: str) -> None:
        self.generation += 1
        self.matrix.forget(row)
        self._concerned.add(app)
        self._lag.outdated(np.flatnonzero(self.slots.ready[: self.slots.count]).tolist())

    def _spread_changes(self) -> None:
        """Mark the slots of residents whose model or signature has changed: once for however
        many changes came together."""
        if self._pressure_moves != self.catalog.moves:
            # A typical pressure follows from all signatures: whoever has none is concerned as well.
            self._pressure_moves = self.catalog.moves
            self._all_concerned = True
        if not (self._concerned or self._all_concerned):
            return
        concerned: set[str] = set()
        for app, node_ids in self.residents.apps().items():
            if self._all_concerned or app in self._concerned:
                concerned |= node_ids
        self._concerned.clear()
        self._all_concerned = False
        for node_id in concerned:
            view = self.nodes.get(node_id)
            for slot in () if view is None else view.slots.values():
                self.slots.version[slot] += 1
                self._lag.changed(slot)

    def _count_memory(self, view: NodeView) -> None:
        promised = sum(
            resident.memory_bytes for resident in self.residents.active_on(view.facts.id)
        )
        self.nodes.memory[view.number] = view.facts.memory_bytes - promised

    def _node_idle(self, node_id: str, suite: int) -> Floats | None:
        view = self.nodes.get(node_id)
        return None if view is None else self._references.of_node(view, suite)


def _families(fingerprint: Fingerprint) -> dict[str, str]:
    return {name: reading.family for name, reading in fingerprint.surrogates.items()}
