"""Explain a prediction by the contribution of each surrogate."""

from __future__ import annotations

import math

import numpy as np

from kongming.arrays import Floats
from kongming.engine import scoring
from kongming.engine.forecast_parts import Met
from kongming.engine.forecaster import Forecaster
from kongming.engine.scoring import Served
from kongming.engine.state import FleetState
from kongming.records.answers import Contribution, Explanation
from kongming.records.errors import CannotAnswerError
from kongming.records.questions import Question


class Explainer:
    """Explains what a forecaster says of the same fleet."""

    def __init__(self, fleet: FleetState, forecaster: Forecaster) -> None:
        self._fleet = fleet
        self._forecaster = forecaster

    def explain(self, question: Question, now: float) -> Explanation:
        subject = self._forecaster.subject(question, now)
        forecast = self._forecaster.answer(question, subject, now)
        idle = self._fleet.baseline(subject.slot)
        if subject.model is None:
            return Explanation(forecast, self._shares(subject.logs, idle, subject.view.by))
        is_carried = self._fleet.is_carried(subject.slot, subject.model)
        met = Met(subject.logs, idle, is_carried, subject.awake)
        return Explanation(forecast, self._contributions(subject.model, met))

    def _contributions(self, model: Served, met: Met) -> tuple[Contribution, ...]:
        rows = scoring.rows_of(model, met.logs, met.logs - met.idle, met.carried)
        complete = [
            (scorer, rows[name])
            for name, scorer in model.by_name().items()
            if not np.isnan(rows[name]).any()
        ]
        if not complete:
            raise CannotAnswerError(
                f"Some surrogates of the model of {model.file.app} were not read, so their parts "
                "are not known.",
                hint="Take a fingerprint of a larger suite.",
            )
        scorer, row = complete[0]
        without = np.tile(row, (len(row) + 1, 1))
        np.fill_diagonal(without[1:], scorer.log_idle)
        awake = np.full(len(without), met.awake)
        predicted, _ = scorer.log_slowdown_and_bound(without, awake)
        lost = (predicted[0] - predicted[1:]).tolist()
        here, idle = met.logs[scorer.places], met.idle[scorer.places]
        idle = np.where(np.isnan(idle), scorer.log_idle, idle)
        contributions = [
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
        return tuple(sorted(contributions, key=lambda part: (-part.log_slowdown, part.surrogate)))

    def _shares(self, logs: Floats, idle: Floats, by: str) -> tuple[Contribution, ...]:
        """Split a general slowdown: every surrogate has the same share."""
        slowed = logs - idle
        known = np.flatnonzero(~np.isnan(slowed)).tolist()
        columns = self._fleet.columns
        contributions = [
            Contribution(
                columns.name(j, by),
                columns.family(j),
                math.exp(logs[j]),
                math.exp(idle[j]),
                float(slowed[j]) / len(known),
            )
            for j in known
        ]
        return tuple(sorted(contributions, key=lambda part: (-part.log_slowdown, part.surrogate)))
