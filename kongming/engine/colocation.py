"""Predict one application co-located with named neighbours on an idle node."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from kongming.engine import environment
from kongming.engine import forecast_parts as answering
from kongming.engine.catalog import Pressure
from kongming.engine.columns import fitted
from kongming.engine.environment import Phase
from kongming.engine.forecast_parts import Met
from kongming.engine.nodes import NodeView
from kongming.engine.scoring import Served
from kongming.engine.state import World
from kongming.learning import predict as library
from kongming.learning.awake import together
from kongming.learning.estimate import Asked
from kongming.records.answers import Colocation, NeighbourImpact
from kongming.records.errors import InputError, UntrainedError
from kongming.records.prediction import Interval, Prediction
from kongming.records.questions import ColocationQuestion
from kongming.records.run import Signature


class Companion:
    """What neighbours that are named, and need not run anywhere, do to an application."""

    def __init__(self, world: World) -> None:
        self._world = world

    def colocation(self, question: ColocationQuestion) -> Colocation:
        world = self._world
        placement = world.catalog.placement(question.app, question.placement)
        model = world.catalog.asked(question.app, placement, 0, question.model)
        view = None if question.node is None else world.nodes.find(question.node)
        node_id = model.file.node_id if view is None else view.facts.id
        pressures = [self._known_pressure(name, placement, model) for name in question.neighbours]
        signatures = {
            name: world.catalog.signatures(name, placement) for name in question.neighbours
        }
        notes: list[str] = []
        warnings: list[str] = []
        if node_id != model.file.node_id:
            notes.append(answering.carried_note(model, view))
            if view is not None and not self._has_reference(view, model):
                warnings.append(
                    f"{view.facts.name} has no idle reference: it is taken to be as the node of "
                    "the training."
                )
        said = self._application(model, question, pressures, signatures)
        impacts = []
        for i, name in enumerate(question.neighbours):
            others = [p for j, p in enumerate(pressures) if j != i]
            impacts.append(self._neighbour(name, placement, others, question, warnings))
        forecast = answering.forecast_of(said, node_id, 0, placement, model)
        forecast = replace(
            forecast,
            warnings=(*forecast.warnings, *warnings),
            notes=(*forecast.notes, *notes),
        )
        return Colocation(forecast, tuple(impacts))

    def _known_pressure(self, name: str, placement: str, model: Served) -> Pressure:
        found = self._world.catalog.pressure(name, placement, model.suite)
        if not found.known:
            raise UntrainedError(
                f"{name} has no signature at {placement}, so what it does to a neighbour is not "
                "known.",
                hint="Profile it: kongming profile APPS.toml --app " + name,
            )
        return found

    def _application(
        self,
        model: Served,
        question: ColocationQuestion,
        pressures: Sequence[Pressure],
        signatures: Mapping[str, Sequence[Signature]],
    ) -> Prediction:
        file = model.file
        widening = self._world.catalog.widening(file.app, file.placement)
        distinct = len(signatures) == len(question.neighbours)
        if distinct and all(s.node_id == file.node_id for ss in signatures.values() for s in ss):
            # All of one node: exactly what the library says of the same records.
            return library.predict_colocated(
                file,
                signatures,
                model=question.model,
                strict=question.strict,
                level=question.level,
                widening=widening.factor,
                widening_groups=widening.groups,
            )
        return answering.predicted(
            model,
            self._idle_plus(pressures),
            Asked(None, None, question.level, widening),
            strict=question.strict,
            neighbours=question.neighbours,
        )

    def _neighbour(
        self,
        name: str,
        placement: str,
        others: Sequence[Pressure],
        question: ColocationQuestion,
        warnings: list[str],
    ) -> NeighbourImpact:
        world = self._world
        model = world.catalog.served(name, placement)
        if model is None:
            warnings.append(f"{name} has no model at {placement}: what it meets is not known.")
            return NeighbourImpact(name, None)
        arriving = world.catalog.pressure(question.app, placement, model.suite)
        if not arriving.known:
            sentence = (
                f"{question.app} has no signature at {placement}: what it does to neighbours is "
                "not known."
            )
            if sentence not in warnings:
                warnings.append(sentence)
            return NeighbourImpact(name, None)
        theirs = [*others, arriving]
        widening = world.catalog.widening(name, placement)
        try:
            slowdown: Interval | None = answering.slowdown(
                model, self._idle_plus(theirs), question.level, widening
            )
        except InputError as error:
            warnings.append(f"What {name} meets is not known: {error.message}")
            slowdown = None
        return NeighbourImpact(name, slowdown)

    def _idle_plus(self, pressures: Sequence[Pressure]) -> Met:
        """An idle node, as slowdowns, with these neighbours on it."""
        idle = np.zeros(len(self._world.columns))
        stacked = np.array([fitted(one.slowed, len(idle)) for one in pressures])
        stacked = stacked.reshape(len(pressures), len(idle))
        logs, _ = environment.met(idle, idle, [Phase.ADDED] * len(pressures), stacked)
        return Met(logs, idle, True, together(one.awake for one in pressures))

    def _has_reference(self, view: NodeView, model: Served) -> bool:
        return any(
            self._world.slots.reference(slot, model.suite) is not None
            for slot in view.slots.values()
        )
