"""Why a prediction is what it is: the part of each surrogate."""

from __future__ import annotations

import math

import numpy as np

from kongming.dataset import Floats
from kongming.errors import CannotAnswerError
from kongming_server.core import answering
from kongming_server.core.answering import Met
from kongming_server.core.forecasting import Forecaster
from kongming_server.core.questions import Contribution, Explanation, Question
from kongming_server.core.scoring import Served
from kongming_server.core.world import World


class Explainer:
    """Explains what a forecaster says of the same world."""

    def __init__(self, world: World, forecaster: Forecaster) -> None:
        self._world = world
        self._forecaster = forecaster

    def explain(self, question: Question, now: float) -> Explanation:
        forecast = self._forecaster.predict(question, now)
        world = self._world
        view = world.nodes.find(question.node)
        slot = view.slots[forecast.domain]
        model = self._forecaster.model(question, forecast.placement)
        logs = self._forecaster.met(question, world.company(slot), view)
        idle = world.slots.idle[slot]
        if model is None:
            return Explanation(forecast, self._shares(logs, idle))
        met = Met(logs, idle, world.is_carried(slot, model))
        return Explanation(forecast, self._contributions(model, met))

    def _contributions(self, model: Served, met: Met) -> tuple[Contribution, ...]:
        times = answering.times_for(model, met, self._world.columns)
        scorer = None
        for code in sorted(model.scorers):
            if all(name in times for name in model.scorers[code].variant.columns):
                scorer = model.scorers[code]
                break
        if scorer is None:
            raise CannotAnswerError(
                f"Some surrogates of the model of {model.file.app} were not read, so their parts "
                "are not known.",
                hint="Take a fingerprint of a larger suite.",
            )
        values = np.array([times[name] for name in scorer.variant.columns])
        rows = np.tile(values, (len(values) + 1, 1))
        np.fill_diagonal(rows[1:], scorer.variant.idle)
        predicted = scorer.frozen.log_slowdown(rows)
        lost = (predicted[0] - predicted[1:]).tolist()
        here, idle = met.logs[scorer.places], met.idle[scorer.places]
        idle = np.where(np.isnan(idle), scorer.log_idle, idle)
        found = [
            Contribution(name, family, math.exp(there), math.exp(alone), part)
            for name, family, there, alone, part in zip(
                scorer.variant.columns,
                scorer.variant.families,
                here.tolist(),
                idle.tolist(),
                lost,
                strict=True,
            )
        ]
        return tuple(sorted(found, key=lambda one: (-one.log_slowdown, one.surrogate)))

    def _shares(self, logs: Floats, idle: Floats) -> tuple[Contribution, ...]:
        """Of a general slowdown every surrogate has the same share."""
        slowed = logs - idle
        known = np.flatnonzero(~np.isnan(slowed)).tolist()
        columns = self._world.columns
        found = [
            Contribution(
                columns.names[j],
                columns.family(j),
                math.exp(logs[j]),
                math.exp(idle[j]),
                float(slowed[j]) / len(known),
            )
            for j in known
        ]
        return tuple(sorted(found, key=lambda one: (-one.log_slowdown, one.surrogate)))
