"""Validate records of runs in environments and arrange them as cases, one per run."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kongming.evaluate.cases import Cases, Floats, median
from kongming.evaluate.records import EnvironmentMeasurement, EnvironmentPrediction
from kongming.evaluate.trivial import MEAN, SOLO, mean_of_others
from kongming.records.errors import InputError
from kongming.records.run import noise_floor_pct


@dataclass(frozen=True, eq=False, slots=True)
class Environments:
    """Applications in environments with a successful run, by name, and their predictions."""

    measured: tuple[EnvironmentMeasurement, ...]
    predicted: Mapping[tuple[str, str, str], EnvironmentPrediction]
    models: tuple[str, ...]
    solo: Mapping[str, float]

    @property
    def runs(self) -> list[tuple[EnvironmentMeasurement, int]]:
        """The cases: each run, as its record and its index therein."""
        return [(record, k) for record in self.measured for k in range(len(record.values))]

    @property
    def names(self) -> list[str]:
        return sorted({record.environment for record in self.measured})

    def environment_of(self) -> NDArray[np.intp]:
        """(runs,) positions in ``names``."""
        names = self.names
        return np.array([names.index(record.environment) for record, _ in self.runs], dtype=np.intp)

    def prediction(
        self, record: EnvironmentMeasurement, model: str
    ) -> EnvironmentPrediction | None:
        """Prediction of a model for the runs of a record, if there is one."""
        return self.predicted.get((record.app, record.environment, model))

    def part(self, *, synthetic: bool) -> Environments:
        """Select the synthetic environments, or the others."""
        selected = tuple(record for record in self.measured if record.synthetic is synthetic)
        return Environments(selected, self.predicted, self.models, self.solo)

    def cases(self) -> Cases:
        """Arrange the runs as cases and add the trivial predictors."""
        runs = self.runs
        apps = tuple(dict.fromkeys(record.app for record in self.measured))
        app_of = np.array([apps.index(record.app) for record, _ in runs], dtype=np.intp)
        costs = np.array([record.values[k] for record, k in runs], dtype=np.float64)
        solos = np.array([self.solo[record.app] for record, _ in runs], dtype=np.float64)
        predicted = np.full((len(self.models), len(runs)), np.nan)
        for m, model in enumerate(self.models):
            for i, (record, k) in enumerate(runs):
                prediction = self.prediction(record, model)
                if prediction is not None:
                    predicted[m, i] = prediction.values[k]
        predicted[self.models.index(MEAN)] = mean_of_others(costs, app_of, self.environment_of())
        predicted[self.models.index(SOLO)] = solos
        return Cases(apps, app_of, costs, solos, self.models, predicted)

    def floors(self, cases: Cases) -> Floats:
        """(apps,): median over environments of a perfect predictor's error on single runs.

        ``noise_floor_pct`` is of the mean of n runs; a single run has sqrt(n) times its spread.
        """
        floors = []
        for app in cases.apps:
            values = [record.values for record in self.measured if record.app == app]
            pairs = [(noise_floor_pct(costs), math.sqrt(len(costs))) for costs in values]
            floors.append(median([floor * widen for floor, widen in pairs if floor is not None]))
        return np.array(floors, dtype=np.float64)

    def without_marked(self) -> Environments:
        """Return the same records with unmarked runs only."""
        measured = []
        predicted = dict(self.predicted)
        for record in self.measured:
            app, environment, marked = record.app, record.environment, record.marked
            unmarked = [k for k in range(len(record.values)) if not (marked and marked[k])]
            if unmarked:
                measured.append(
                    EnvironmentMeasurement(
                        app,
                        environment,
                        record.kind,
                        record.synthetic,
                        tuple(record.values[k] for k in unmarked),
                    )
                )
            for model in self.models:
                prediction = self.prediction(record, model)
                if prediction is not None:
                    values = tuple(prediction.values[k] for k in unmarked)
                    predicted[app, environment, model] = EnvironmentPrediction(
                        app, environment, model, values
                    )
        return Environments(tuple(measured), predicted, self.models, self.solo)


def arranged(
    measured: Sequence[EnvironmentMeasurement],
    predicted: Sequence[EnvironmentPrediction],
    models: tuple[str, ...],
    solo: Mapping[str, float],
) -> Environments:
    """Validate and sort the records. Raises InputError as ``score_environments`` documents."""
    ordered = sorted(measured, key=lambda record: (record.app, record.environment))
    if not any(record.values for record in ordered):
        raise InputError("holds no successful run.", field="measured", allowed="one or more")
    sizes: dict[tuple[str, str], int] = {}
    kinds: dict[str, tuple[str, bool]] = {}
    for record in ordered:
        if (record.app, record.environment) in sizes:
            raise InputError(
                "is there twice.",
                field="measured",
                found=f"{record.app} in {record.environment}",
                allowed="one record for all runs of an application in an environment",
            )
        sizes[record.app, record.environment] = len(record.values)
        kind = kinds.setdefault(record.environment, (record.kind, record.synthetic))
        if kind != (record.kind, record.synthetic):
            raise InputError(
                f"of {record.environment} differs between its applications.",
                field="kind",
                found=[kind, (record.kind, record.synthetic)],
                allowed="one kind, real or synthetic",
            )
        if not (math.isfinite(solo.get(record.app, math.nan)) and solo[record.app] > 0.0):
            raise InputError(
                f"is missing or not a cost for {record.app}.",
                field="solo",
                found=solo.get(record.app),
                allowed="a finite number above 0 by application",
            )
    successful = tuple(record for record in ordered if record.values)
    return Environments(successful, _by_key(predicted, sizes), models, solo)


def _by_key(
    predicted: Sequence[EnvironmentPrediction], sizes: Mapping[tuple[str, str], int]
) -> dict[tuple[str, str, str], EnvironmentPrediction]:
    by_key: dict[tuple[str, str, str], EnvironmentPrediction] = {}
    for prediction in predicted:
        app, environment, model = prediction.app, prediction.environment, prediction.model
        if (app, environment, model) in by_key:
            raise InputError(
                "is there twice.",
                field="predicted",
                found=f"{model} for {app} in {environment}",
                allowed="one record of a model for all runs in an environment",
            )
        runs = sizes.get((app, environment))
        if runs is not None and runs != len(prediction.values):
            raise InputError(
                f"of {model} for {app} in {environment} do not match the runs.",
                field="values",
                found=len(prediction.values),
                allowed=f"{runs}, one for each successful run",
            )
        by_key[app, environment, model] = prediction
    return by_key
