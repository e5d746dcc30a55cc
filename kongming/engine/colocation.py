"""Predict one application co-located with named neighbours, on an idle node or on a live one."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from kongming.arrays import Floats
from kongming.engine import awake_shares, environment
from kongming.engine import forecast_parts as answering
from kongming.engine.catalog import Pressure
from kongming.engine.columns import fitted
from kongming.engine.forecast_parts import Met
from kongming.engine.nodes import NodeView
from kongming.engine.scoring import Served
from kongming.engine.state import FleetState
from kongming.learning import predict as library
from kongming.learning.awake import together
from kongming.learning.estimate import EstimateOptions
from kongming.records.answers import Colocation, NeighbourImpact
from kongming.records.errors import (
    CannotAnswerError,
    InputError,
    UntrainedError,
)
from kongming.records.prediction import Prediction
from kongming.records.questions import ColocationQuestion


@dataclass(frozen=True, eq=False, slots=True)
class _Base:
    """Load by the neighbours: ``logs`` and ``idle`` (C,) in log seconds per operation, the
    ``noise`` (C,) of those who were added to it (``environment.Environments``), and the shares of
    time in which those who run there keep a CPU ``awake``, (2,) (``awake_shares``). ``slot`` None
    is an idle node, of which only slowdowns matter."""

    logs: Floats
    idle: Floats
    noise: Floats
    awake: Floats
    slot: int | None = None


class Companion:
    """Effect that neighbours that are named, and need not run anywhere, have on an application."""

    def __init__(self, fleet: FleetState) -> None:
        self._fleet = fleet

    def colocation(self, question: ColocationQuestion, live: int | None) -> Colocation:
        """``live`` is the cache domain whose newest fingerprint the neighbours come to: it already
        holds whoever runs there. None is the idle node."""
        fleet = self._fleet
        placement = fleet.catalog.placement(question.app, question.placement)
        model = fleet.catalog.requested(question.app, placement, 0, question.model)
        view = None if question.node is None else fleet.nodes.find(question.node)
        node_id = model.file.node_id if view is None else view.facts.id
        is_live = view is not None and live is not None
        self._check_known(question.neighbours, model, is_live)
        base = self._idle() if view is None or live is None else self._live(view, live)
        if view is not None and base.slot is not None:
            answering.check_suite(fleet, base.slot, view, model)
            answering.check_readable(fleet, base.slot, view, model)
        notes: list[str] = []
        warnings: list[str] = []
        if node_id != model.file.node_id:
            notes.append(answering.carried_note(model, view))
        is_unknown = self._is_unknown(view, base, model)
        if view is not None and is_unknown:
            warnings.append(
                f"{view.facts.name} has no idle reference: it is taken to be as the node of the "
                "training, and the intervals are not calibrated."
            )
        if not is_live:
            warnings += self._outdated(question.neighbours, model)
        prediction = self._application(model, question, base)
        impacts: dict[str, NeighbourImpact] = {}
        for i, name in enumerate(question.neighbours):
            if name in impacts:
                # It meets what the first of this name does.
                continue
            names = (*question.neighbours[:i], *question.neighbours[i + 1 :], question.app)
            its = replace(
                question, app=name, neighbours=names, placement=placement, model=None, strict=False
            )
            impacts[name] = self._neighbour(its, question.app, view, base, warnings)
        forecast = answering.forecast_of(prediction, node_id, live or 0, placement, model)
        if view is not None and base.slot is not None and fleet.is_carried(base.slot, model):
            forecast = answering.borrowed(fleet, base.slot, view, forecast)
        if view is not None:
            forecast = answering.of_another_type(fleet, view, model, forecast)
        if is_unknown:
            forecast = answering.uncalibrated(forecast)
        forecast = replace(
            forecast,
            warnings=(*forecast.warnings, *warnings),
            notes=(*forecast.notes, *notes),
        )
        return Colocation(forecast, tuple(impacts[name] for name in question.neighbours))

    def _check_known(self, names: Iterable[str], model: Served, is_live: bool) -> None:
        """Raise UntrainedError where it is not known what one of these inflicts on the program of
        ``model``."""
        catalog, placement = self._fleet.catalog, model.file.placement
        for name in dict.fromkeys(names):
            if not is_live and catalog.signatures_at_home(name, placement, model):
                continue
            if not catalog.pressure(name, placement, model.suite).known:
                raise UntrainedError(
                    f"{name} has no signature at {placement}, so what it does to a neighbour is "
                    "not known.",
                    hint="Profile it: kongming profile APPS.toml --app " + name,
                )

    def _outdated(self, names: Iterable[str], model: Served) -> list[str]:
        """A warning for each of these whose signatures of the model's node are of another program
        than its newest of any."""
        catalog, file = self._fleet.catalog, model.file
        at_home = {name: catalog.signatures_at_home(name, file.placement, model) for name in names}
        return [
            f"{name} was profiled again since, elsewhere or by another suite, with another "
            "command, environment, set-up or executable: its older signature counts, of the node "
            f"that {file.app} was trained on."
            for name, signatures in at_home.items()
            if signatures and catalog.is_outdated(signatures[-1])
        ]

    def _inflicted(self, name: str, model: Served, is_live: bool) -> Pressure:
        """Return what a neighbour inflicts on the program of ``model``. Next to it on the idle node
        that is over one idle time, the model's own, for all neighbours that were measured there:
        more of them never press less."""
        catalog, placement = self._fleet.catalog, model.file.placement
        at_home = None if is_live else catalog.pressure_at_home(name, placement, model)
        return catalog.pressure(name, placement, model.suite) if at_home is None else at_home

    def _application(self, model: Served, question: ColocationQuestion, base: _Base) -> Prediction:
        """Predict the question's application, by ``model``, next to its neighbours. Averages the
        signatures of each once, however many copies there are."""
        file = model.file
        widening = answering.widening_of(self._fleet, model)
        at_home = self._fleet.catalog.signatures_at_home
        signatures = {name: at_home(name, file.placement, model) for name in question.neighbours}
        if base.slot is None and all(signatures.values()):
            # All of one node: exactly what the library says of the same records.
            return library.predict_colocated(
                file,
                [(name, signatures[name]) for name in question.neighbours],
                model=question.model,
                strict=question.strict,
                level=question.level,
                widening=widening,
            )
        is_live = base.slot is not None
        pressures = {name: self._inflicted(name, model, is_live) for name in signatures}
        return answering.predicted(
            model,
            self._met(model, base, [pressures[name] for name in question.neighbours]),
            EstimateOptions(None, None, question.level, widening),
            strict=question.strict,
        )

    def _neighbour(
        self,
        question: ColocationQuestion,
        newcomer: str,
        view: NodeView | None,
        base: _Base,
        warnings: list[str],
    ) -> NeighbourImpact:
        """``question`` is about a neighbour that meets the others and the newcomer."""
        fleet = self._fleet
        name, placement = question.app, str(question.placement)
        model = fleet.catalog.served(name, placement)
        if model is None:
            warnings.append(f"{name} has no model at {placement}: what it meets is not known.")
            return NeighbourImpact(name, None)
        is_live = base.slot is not None
        try:
            self._check_known((newcomer,), model, is_live)
        except UntrainedError:
            sentence = (
                f"{newcomer} has no signature at {placement}: what it does to neighbours is not "
                "known."
            )
            if sentence not in warnings:
                warnings.append(sentence)
            return NeighbourImpact(name, None)
        try:
            if view is not None and base.slot is not None:
                answering.check_suite(fleet, base.slot, view, model)
                answering.check_readable(fleet, base.slot, view, model)
            self._check_known(question.neighbours, model, is_live)
            met = self._application(model, question, base)
        except (InputError, UntrainedError) as error:
            warnings.append(f"What {name} meets is not known: {error.message}")
            return NeighbourImpact(name, None)
        slowdown = met.slowdown
        if base.slot is not None and fleet.is_carried(base.slot, model):
            is_calibrated = slowdown.calibrated and not fleet.slots.lenders[base.slot]
            slowdown = replace(slowdown, calibrated=bool(is_calibrated))
        if self._is_unknown(view, base, model):
            slowdown = replace(slowdown, calibrated=False)
        return NeighbourImpact(name, slowdown)

    def _idle(self) -> _Base:
        idle = np.zeros(len(self._fleet.columns))
        return _Base(idle, idle, idle, np.zeros(2))

    def _live(self, view: NodeView, domain: int) -> _Base:
        slots = self._fleet.slots
        slot = view.slots.get(domain)
        if slot is None or math.isnan(slots.taken_at[slot]):
            raise CannotAnswerError(f"Nothing was read on {view.facts.name} yet: no fingerprint.")
        company = self._fleet.company(slot)
        width = slots.width
        awake = np.nan_to_num(company.awake)
        # Columns may have come since, of which nothing was read.
        noise = np.nan_to_num(fitted(company.noise.astype(np.float64), width))
        return _Base(fitted(company.met, width), slots.idle[slot], noise, awake, slot)

    def _met(self, model: Served, base: _Base, pressures: Sequence[Pressure]) -> Met:
        """Return what a program meets where these neighbours have come to ``base``."""
        width = len(base.idle)
        slowed, spreads = (
            np.array([fitted(vector, width) for vector in vectors]).reshape(len(pressures), width)
            for vectors in ([p.slowed for p in pressures], [p.spread for p in pressures])
        )
        logs = base.logs + environment.added_up(slowed, spreads, base.noise)
        is_carried = base.slot is None or self._fleet.is_carried(base.slot, model)
        there = float(base.awake[awake_shares.counted(model.file.placement)])
        awake = together((there, *(pressure.awake for pressure in pressures)))
        return Met(logs, base.idle, is_carried, awake)

    def _is_unknown(self, view: NodeView | None, base: _Base, model: Served) -> bool:
        """Return whether a node is taken idle, is not that of the training, and has no reference by
        which the two could be told apart."""
        if view is None or base.slot is not None or view.facts.id == model.file.node_id:
            return False
        return all(
            self._fleet.slots.reference(slot, model.suite) is None for slot in view.slots.values()
        )
