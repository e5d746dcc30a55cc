"""Records of ordered pairs, checked and laid out as cases."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from kongming.errors import InputError
from kongming.evaluate.cases import Cases, Floats, median
from kongming.evaluate.records import PairMeasurement, PairPrediction, unmarked
from kongming.evaluate.summary import model_order
from kongming.evaluate.trivial import MEAN, PAIRMEAN, SOLO, TRIVIAL, mean_of_others
from kongming.run import geometric_mean, noise_floor_pct


@dataclass(frozen=True, eq=False, slots=True)
class Pairs:
    """Measured pairs with a successful repeat, by name, and what was said about them.

    The order of measuring changes no digit, for everything is computed in order of names.
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
        """Raises InputError as ``score_pairs`` says."""
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
            model_order([one.model for one in predicted], TRIVIAL),
            solo,
            training_mean,
        )

    def prediction(self, pair: PairMeasurement, model: str) -> PairPrediction | None:
        """What arrived for this pair under this name."""
        return self.predicted.get((pair.app, pair.beside, model))

    def cases(self) -> Cases:
        """Measured is the geometric mean of the repeats; the trivial predictors are added."""
        pairs = self.measured
        apps = tuple(dict.fromkeys(pair.app for pair in pairs))
        app_of = np.array([apps.index(pair.app) for pair in pairs], dtype=np.intp)
        partner_of = np.unique([pair.beside for pair in pairs], return_inverse=True)[1]
        costs = np.array([geometric_mean(pair.values) for pair in pairs])
        solos = np.array([self.solo[pair.app] for pair in pairs], dtype=np.float64)
        predicted = np.full((len(self.models), len(pairs)), np.nan)
        for m, model in enumerate(self.models):
            for i, pair in enumerate(pairs):
                one = self.prediction(pair, model)
                if one is not None:
                    predicted[m, i] = one.value
                if model == MEAN and pair.app in self.training_mean:
                    predicted[m, i] = self.training_mean[pair.app]
        predicted[self.models.index(SOLO)] = solos
        predicted[self.models.index(PAIRMEAN)] = mean_of_others(costs, app_of, partner_of)
        return Cases(apps, app_of, costs, solos, self.models, predicted)

    def repeats(self) -> Floats:
        """(pairs, most repeats) costs, oldest first, NaN for those that are missing."""
        most = max(len(pair.values) for pair in self.measured)
        found = np.full((len(self.measured), most), np.nan)
        for i, pair in enumerate(self.measured):
            found[i, : len(pair.values)] = pair.values
        return found

    def floors(self, cases: Cases) -> Floats:
        """(apps,): median over partners of what a perfect predictor would still be off by."""
        each = [noise_floor_pct(pair.values) for pair in self.measured]
        floors = np.array([np.nan if floor is None else floor for floor in each])
        return np.array([median(floors[cases.of_app(a)]) for a in range(len(cases.apps))])

    def without_marked(self) -> Pairs | None:
        """The same with unmarked repeats only; None where all of them are marked."""
        left = [
            PairMeasurement(pair.app, pair.beside, values)
            for pair in self.measured
            if (values := unmarked(pair.values, pair.marked))
        ]
        if not left:
            return None
        return Pairs(tuple(left), (), self.predicted, self.models, self.solo, self.training_mean)


def _check_once(ordered: Sequence[PairMeasurement]) -> None:
    for one, following in itertools.pairwise(ordered):
        if (one.app, one.beside) == (following.app, following.beside):
            raise InputError(
                "is there twice.",
                field="measured",
                found=f"{one.app} beside {one.beside}",
                allowed="each ordered pair once",
                hint="Put all repeats of a pair into one record.",
            )


def _by_key(
    predicted: Sequence[PairPrediction],
) -> dict[tuple[str, str, str], PairPrediction]:
    found: dict[tuple[str, str, str], PairPrediction] = {}
    for one in predicted:
        key = (one.app, one.beside, one.model)
        if key in found:
            raise InputError(
                "is there twice.",
                field="predicted",
                found=f"{one.model} for {one.app} beside {one.beside}",
                allowed="one prediction of a model for a pair",
            )
        found[key] = one
    return found


def _check_above_zero(app: str, field: str, value: float | None) -> None:
    if value is None or not (np.isfinite(value) and value > 0.0):
        raise InputError(
            f"is missing or no cost for {app}.",
            field=field,
            found=value,
            allowed="a finite number above 0 by application",
        )
