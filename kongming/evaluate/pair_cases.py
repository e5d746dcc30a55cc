"""Validate records of ordered pairs and arrange them as cases."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from kongming.evaluate.cases import Cases, Floats, median
from kongming.evaluate.records import PairMeasurement, PairPrediction, unmarked
from kongming.evaluate.summary import model_order
from kongming.evaluate.trivial import MEAN, PAIRMEAN, SOLO, TRIVIAL, mean_of_others
from kongming.records.errors import InputError
from kongming.records.run import geometric_mean, noise_floor_pct


@dataclass(frozen=True, eq=False, slots=True)
class Pairs:
    """Measured pairs with a successful repeat, sorted by name, and their predictions.

    Everything is computed in the order of names, so results do not depend on the measuring order.
    """

    measured: tuple[PairMeasurement, ...]
    unmeasured: tuple[tuple[str, str], ...]
    predicted: Mapping[tuple[str, str, str], PairPrediction]
    models: tuple[str, ...]
    solo: Mapping[str, float]
    training_mean: Mapping[str, float]

    @classmethod
    def of(
        cls,
        measured: Sequence[PairMeasurement],
        predicted: Sequence[PairPrediction],
        solo: Mapping[str, float],
        training_mean: Mapping[str, float],
    ) -> Pairs:
        """Validate and sort the records. Raises InputError as ``score_pairs`` documents."""
        ordered = sorted(measured, key=lambda pair: (pair.app, pair.beside))
        pairs = tuple(pair for pair in ordered if pair.values)
        _check_once(ordered)
        if not pairs:
            raise InputError(
                "holds no pair with a successful repeat.", field="measured", allowed="one or more"
            )
        for pair in pairs:
            _check_above_zero(pair.app, "solo", solo.get(pair.app))
            if pair.app in training_mean:
                _check_above_zero(pair.app, "training_mean", training_mean[pair.app])
        return cls(
            pairs,
            tuple((pair.app, pair.beside) for pair in ordered if not pair.values),
            _by_key(predicted),
            model_order([prediction.model for prediction in predicted], TRIVIAL),
            solo,
            training_mean,
        )

    def prediction(self, pair: PairMeasurement, model: str) -> PairPrediction | None:
        """Prediction of a model for a pair, if there is one."""
        return self.predicted.get((pair.app, pair.beside, model))

    def cases(self) -> Cases:
        """Arrange the pairs as cases, measured by the geometric mean of their repeats, and add the
        trivial predictors."""
        pairs = self.measured
        apps = tuple(dict.fromkeys(pair.app for pair in pairs))
        app_of = np.array([apps.index(pair.app) for pair in pairs], dtype=np.intp)
        partner_of = np.unique([pair.beside for pair in pairs], return_inverse=True)[1]
        costs = np.array([geometric_mean(pair.values) for pair in pairs])
        solos = np.array([self.solo[pair.app] for pair in pairs], dtype=np.float64)
        predicted = np.full((len(self.models), len(pairs)), np.nan)
        for m, model in enumerate(self.models):
            for i, pair in enumerate(pairs):
                prediction = self.prediction(pair, model)
                if prediction is not None:
                    predicted[m, i] = prediction.value
                if model == MEAN and pair.app in self.training_mean:
                    predicted[m, i] = self.training_mean[pair.app]
        predicted[self.models.index(SOLO)] = solos
        predicted[self.models.index(PAIRMEAN)] = mean_of_others(costs, app_of, partner_of)
        return Cases(apps, app_of, costs, solos, self.models, predicted)

    def repeats(self) -> Floats:
        """(pairs, most repeats) costs, oldest first, NaN if missing."""
        most = max(len(pair.values) for pair in self.measured)
        costs = np.full((len(self.measured), most), np.nan)
        for i, pair in enumerate(self.measured):
            costs[i, : len(pair.values)] = pair.values
        return costs

    def floors(self, cases: Cases) -> Floats:
        """(apps,): median over partners of the error that a perfect predictor would have."""
        each = [noise_floor_pct(pair.values) for pair in self.measured]
        floors = np.array([np.nan if floor is None else floor for floor in each])
        return np.array([median(floors[cases.of_app(a)]) for a in range(len(cases.apps))])

    def without_marked(self) -> Pairs | None:
        """Return the same pairs with unmarked repeats only; None if all are marked."""
        remaining = [
            PairMeasurement(pair.app, pair.beside, values)
            for pair in self.measured
            if (values := unmarked(pair.values, pair.marked))
        ]
        if not remaining:
            return None
        return Pairs(
            tuple(remaining), (), self.predicted, self.models, self.solo, self.training_mean
        )


def _check_once(ordered: Sequence[PairMeasurement]) -> None:
    for pair, following in itertools.pairwise(ordered):
        if (pair.app, pair.beside) == (following.app, following.beside):
            raise InputError(
                "is there twice.",
                field="measured",
                found=f"{pair.app} beside {pair.beside}",
                allowed="each ordered pair once",
                hint="Put all repeats of a pair into one record.",
            )


def _by_key(
    predicted: Sequence[PairPrediction],
) -> dict[tuple[str, str, str], PairPrediction]:
    by_key: dict[tuple[str, str, str], PairPrediction] = {}
    for prediction in predicted:
        app, neighbour, model = prediction.app, prediction.beside, prediction.model
        if (app, neighbour, model) in by_key:
            raise InputError(
                "is there twice.",
                field="predicted",
                found=f"{model} for {app} beside {neighbour}",
                allowed="one prediction of a model for a pair",
            )
        by_key[app, neighbour, model] = prediction
    return by_key


def _check_above_zero(app: str, field: str, value: float | None) -> None:
    if value is None or not (np.isfinite(value) and value > 0.0):
        raise InputError(
            f"is missing or not a cost for {app}.",
            field=field,
            found=value,
            allowed="a finite number above 0 by application",
        )
