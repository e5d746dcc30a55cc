"""Records of runs in environments, checked and laid out as cases: one case a run."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kongming.errors import InputError
from kongming.evaluate.cases import Cases, Floats, median
from kongming.evaluate.records import EnvironmentMeasurement, EnvironmentPrediction
from kongming.evaluate.trivial import MEAN, SOLO, mean_of_others
from kongming.run import noise_floor_pct


@dataclass(frozen=True, eq=False, slots=True)
class Environments:
    """Applications in environments with a run that succeeded, by name, and what was said."""

    measured: tuple[EnvironmentMeasurement, ...]
    predicted: Mapping[tuple[str, str, str], EnvironmentPrediction]
    models: tuple[str, ...]
    solo: Mapping[str, float]

    @property
    def runs(self) -> list[tuple[EnvironmentMeasurement, int]]:
        """The cases: each run, as its record and its place therein."""
        return [(one, k) for one in self.measured for k in range(len(one.values))]

    @property
    def names(self) -> list[str]:
        return sorted({one.environment for one in self.measured})

    def environment_of(self) -> NDArray[np.intp]:
        """(runs,) positions in ``names``."""
        names = self.names
        return np.array([names.index(one.environment) for one, _ in self.runs], dtype=np.intp)

    def prediction(self, one: EnvironmentMeasurement, model: str) -> EnvironmentPrediction | None:
        """What arrived for these runs under this name."""
        return self.predicted.get((one.app, one.environment, model))

    def part(self, *, synthetic: bool) -> Environments:
        """The synthetic ones, or the others."""
        chosen = tuple(one for one in self.measured if one.synthetic is synthetic)
        return Environments(chosen, self.predicted, self.models, self.solo)

    def cases(self) -> Cases:
        """The trivial predictors are added."""
        runs = self.runs
        apps = tuple(dict.fromkeys(one.app for one in self.measured))
        app_of = np.array([apps.index(one.app) for one, _ in runs], dtype=np.intp)
        costs = np.array([one.values[k] for one, k in runs], dtype=np.float64)
        solos = np.array([self.solo[one.app] for one, _ in runs], dtype=np.float64)
        predicted = np.full((len(self.models), len(runs)), np.nan)
        for m, model in enumerate(self.models):
            for i, (one, k) in enumerate(runs):
                said = self.prediction(one, model)
                if said is not None:
                    predicted[m, i] = said.values[k]
        predicted[self.models.index(MEAN)] = mean_of_others(costs, app_of, self.environment_of())
        predicted[self.models.index(SOLO)] = solos
        return Cases(apps, app_of, costs, solos, self.models, predicted)

    def floors(self, cases: Cases) -> Floats:
        """(apps,): median over environments of what a perfect predictor would be off by.

        Of single runs: the mean of n logs has the spread of one over sqrt(n).
        """
        found = []
        for app in cases.apps:
            values = [one.values for one in self.measured if one.app == app]
            floors = [(noise_floor_pct(costs), math.sqrt(len(costs))) for costs in values]
            found.append(median([floor * widen for floor, widen in floors if floor is not None]))
        return np.array(found, dtype=np.float64)

    def without_marked(self) -> Environments:
        """The same with unmarked runs only."""
        measured = []
        predicted = dict(self.predicted)
        for one in self.measured:
            kept = [k for k in range(len(one.values)) if not (one.marked and one.marked[k])]
            if kept:
                measured.append(
                    EnvironmentMeasurement(
                        one.app,
                        one.environment,
                        one.kind,
                        one.synthetic,
                        tuple(one.values[k] for k in kept),
                    )
                )
            for model in self.models:
                said = self.prediction(one, model)
                if said is not None:
                    predicted[one.app, one.environment, model] = EnvironmentPrediction(
                        one.app, one.environment, model, tuple(said.values[k] for k in kept)
                    )
        return Environments(tuple(measured), predicted, self.models, self.solo)


def arranged(
    measured: Sequence[EnvironmentMeasurement],
    predicted: Sequence[EnvironmentPrediction],
    models: tuple[str, ...],
    solo: Mapping[str, float],
) -> Environments:
    """The records in order of names. Raises InputError as ``score_environments`` says."""
    ordered = sorted(measured, key=lambda one: (one.app, one.environment))
    if not any(one.values for one in ordered):
        raise InputError("holds no successful run.", field="measured", allowed="one or more")
    sizes: dict[tuple[str, str], int] = {}
    kinds: dict[str, tuple[str, bool]] = {}
    for one in ordered:
        if (one.app, one.environment) in sizes:
            raise InputError(
                "is there twice.",
                field="measured",
                found=f"{one.app} in {one.environment}",
                allowed="one record for all runs of an application in an environment",
            )
        sizes[one.app, one.environment] = len(one.values)
        kind = kinds.setdefault(one.environment, (one.kind, one.synthetic))
        if kind != (one.kind, one.synthetic):
            raise InputError(
                f"of {one.environment} differs between its applications.",
                field="kind",
                found=[kind, (one.kind, one.synthetic)],
                allowed="one kind, real or synthetic",
            )
        if not (math.isfinite(solo.get(one.app, math.nan)) and solo[one.app] > 0.0):
            raise InputError(
                f"is missing or no cost for {one.app}.",
                field="solo",
                found=solo.get(one.app),
                allowed="a finite number above 0 by application",
            )
    kept = tuple(one for one in ordered if one.values)
    return Environments(kept, _by_key(predicted, sizes), models, solo)


def _by_key(
    predicted: Sequence[EnvironmentPrediction], sizes: Mapping[tuple[str, str], int]
) -> dict[tuple[str, str, str], EnvironmentPrediction]:
    given: dict[tuple[str, str, str], EnvironmentPrediction] = {}
    for said in predicted:
        key = (said.app, said.environment, said.model)
        if key in given:
            raise InputError(
                "is there twice.",
                field="predicted",
                found=f"{said.model} for {said.app} in {said.environment}",
                allowed="one record of a model for all runs in an environment",
            )
        runs = sizes.get((said.app, said.environment))
        if runs is not None and runs != len(said.values):
            raise InputError(
                f"of {said.model} for {said.app} in {said.environment} do not match the runs.",
                field="values",
                found=len(said.values),
                allowed=f"{runs}, one for each run that succeeded",
            )
        given[key] = said
    return given
