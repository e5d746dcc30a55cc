"""Score predictions of one application in changing environments, each left out in turn: the paper's
Table IV.

A case is one run, since each run has its own fingerprint. Environments are cgroups, mixes of
programs, or instances; ``synthetic`` substitutes are scored separately.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kongming.evaluate.cases import Cases, Floats, geometric, mean, median
from kongming.evaluate.coverage import one_level
from kongming.evaluate.noise import errors_of_runs, floors, repeat_variances
from kongming.evaluate.records import (
    EnvironmentMeasurement,
    EnvironmentPrediction,
    Scored,
    once_each,
)
from kongming.evaluate.skill import ratio
from kongming.evaluate.summary import (
    document,
    geomeans,
    interval_coverage,
    model_order,
    summary,
    unpredicted,
)
from kongming.evaluate.trivial import MEAN, SOLO, of_others
from kongming.learning.registry import AUTO
from kongming.records.errors import InputError

_TRIVIAL = (MEAN, SOLO)


def score_environments(
    measured: Sequence[EnvironmentMeasurement],
    predicted: Sequence[EnvironmentPrediction],
    *,
    solo: Mapping[str, float],
    chosen: Mapping[str, str],
    node: Mapping[str, Any],
    runs: int,
    elapsed_s: float,
    scored: Scored,
    placement: str | None = None,
    seed: int = 0,
) -> dict[str, Any]:
    """Return the JSON document of an evaluation over environments; None for undefined figures.

    An error is |predicted - measured| / measured of one run in per cent; an application's figure
    is the median over all its runs, each predicted by a model that was not trained on its
    environment. MEAN, added here, is the mean over the application's runs in the other
    environments, and SOLO its ``solo`` time; predictions under these names are not used.
    ``excess`` is the headline (see ``excess``; the clusters are applications and environments).
    ``ratio_to_mean`` is a model's geomean over MEAN's, and ``skill`` the same with the noise floor
    taken off both; their intervals are bootstrapped over applications.

    The noise floor is the error of a perfect predictor of the environment on single runs, from the
    differences of repeats in one environment. Changes between two runs in one
    environment count as noise, so a model that observes them may have a smaller error.

    The figures at the top are those of real environments; ``synthetic`` holds the same for the
    others, None where there are none. ``scored_runs`` holds every number that was scored. The
    other arguments are as ``score_pairs``'s.

    Raises:
        InputError: a record occurs twice, there is no measurement, an application has no solo time,
            predictions do not match the runs in number, an environment has two kinds, or intervals
            of ``auto`` have different levels.
    """
    models = model_order([prediction.model for prediction in predicted], _TRIVIAL)
    everything = _arranged(measured, predicted, models, solo)
    real = everything.part(synthetic=False)
    synthetic = everything.part(synthetic=True)
    return document(
        {
            "kind": "nodes",
            "placement": placement,
            "node": node,
            "apps": list(dict.fromkeys(record.app for record in everything.measured)),
            "environments": _environments(everything),
            "runs": runs,
            "elapsed_s": elapsed_s,
            "scored": scored,
            **_figures(real, seed),
            "chosen": chosen,
            "synthetic": _figures(synthetic, seed) if synthetic.measured else None,
            "scored_runs": _rows(real) + _rows(synthetic),
        }
    )


def _figures(environments: _Environments, seed: int) -> dict[str, Any]:
    cases = environments.cases()
    medians = cases.quartiles()[1]
    logs, ranks = cases.mean_abs_log_pct(), cases.spearman()
    truth = environments.truth()
    floor = floors(truth, cases.app_of, len(cases.apps))
    ratios = {}
    for model, row in zip(cases.models, medians, strict=True):
        value, interval = ratio(row, medians[cases.models.index(MEAN)], seed=seed)
        ratios[model] = {"value": value, "interval": interval}
    return {
        **summary(
            cases,
            floor,
            environments.variances(),
            environments.environment_of(),
            trivial=MEAN,
            seed=seed,
        ),
        "ratio_to_mean": ratios,
        "all": {
            model: {"mean_abs_log_pct": logs[m], "spearman": ranks[m]}
            for m, model in enumerate(cases.models)
        },
        "truth": {
            "geomean_pct": geometric(floor),
            "mean_abs_log_pct": 100.0 * mean(truth.ravel()),
        },
        "per_environment": _per_environment(cases, environments),
        "coverage": _coverage(cases, environments),
        "marked": _marked(environments),
        "unpredicted": unpredicted(cases),
    }


def _per_environment(cases: Cases, environments: _Environments) -> dict[str, dict[str, float]]:
    """{ENVIRONMENT: {MODEL: median error in per cent over all runs in it}}."""
    errors, environment_of = cases.errors, environments.environment_of()
    return {
        name: {
            model: median(errors[m, environment_of == e]) for m, model in enumerate(cases.models)
        }
        for e, name in enumerate(environments.names)
    }


def _coverage(cases: Cases, environments: _Environments) -> dict[str, Any]:
    bounds: list[tuple[float, float] | None] = []
    at_least = []
    levels = set()
    for record, k in environments.runs:
        prediction = environments.prediction(record, AUTO)
        at_least.append(prediction is not None and any(prediction.at_least[k : k + 1]))
        if prediction is None or not prediction.lower:
            bounds.append(None)
            continue
        bounds.append((prediction.lower[k], prediction.upper[k]))
        levels.add(prediction.level)
    return {
        "level": one_level(levels),
        "run": interval_coverage(cases, bounds, cases.measured[:, None].tolist(), at_least),
    }


def _marked(environments: _Environments) -> dict[str, Any] | None:
    """Share of marked runs, and the errors without them; None if no run was checked."""
    marks = [mark for record in environments.measured for mark in record.marked]
    if not marks:
        return None
    unmarked = environments.without_marked()
    cases = unmarked.cases()
    floor = floors(unmarked.truth(), cases.app_of, len(cases.apps))
    return {
        "share": float(np.mean(marks)),
        "runs_left": len(cases.measured),
        "geomean_pct": geomeans(cases, cases.quartiles()[1]),
        "noise_floor_pct": geometric(floor),
    }


def _rows(environments: _Environments) -> list[dict[str, Any]]:
    cases = environments.cases()
    errors = cases.errors
    return [
        {
            "app": record.app,
            "environment": record.environment,
            "kind": record.kind,
            "synthetic": record.synthetic,
            "run": k,
            "measured": record.values[k],
            "slowdown": record.values[k] / cases.solo[i],
            "marked": record.marked[k] if record.marked else None,
            "predictions": {
                model: _scored_prediction(
                    cases.predicted[m, i],
                    errors[m, i],
                    None if model in _TRIVIAL else environments.prediction(record, model),
                    k,
                )
                for m, model in enumerate(cases.models)
                if np.isfinite(cases.predicted[m, i])
            },
        }
        for i, (record, k) in enumerate(environments.runs)
    ]


def _scored_prediction(
    value: float, error: float, prediction: EnvironmentPrediction | None, run: int
) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "value": value,
        "error_pct": error,
        "lower": None,
        "upper": None,
        "level": None,
        "extrapolating": False,
        "at_least": False,
    }
    if prediction is not None and prediction.lower:
        entry["lower"], entry["upper"] = prediction.lower[run], prediction.upper[run]
        entry["level"] = prediction.level
    if prediction is not None and prediction.extrapolating:
        entry["extrapolating"] = prediction.extrapolating[run]
    if prediction is not None and prediction.at_least:
        entry["at_least"] = prediction.at_least[run]
    return entry


def _environments(everything: _Environments) -> list[dict[str, Any]]:
    by_name: dict[str, dict[str, Any]] = {}
    for record in sorted(everything.measured, key=lambda record: record.environment):
        entry = by_name.setdefault(
            record.environment,
            {
                "name": record.environment,
                "kind": record.kind,
                "synthetic": record.synthetic,
                "apps": [],
                "runs": 0,
            },
        )
        entry["apps"].append(record.app)
        entry["runs"] += len(record.values)
    return list(by_name.values())


@dataclass(frozen=True, eq=False, slots=True)
class _Environments:
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

    def part(self, *, synthetic: bool) -> _Environments:
        """Select the synthetic environments, or the others."""
        selected = tuple(record for record in self.measured if record.synthetic is synthetic)
        return _Environments(selected, self.predicted, self.models, self.solo)

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
        predicted[self.models.index(MEAN)] = of_others(
            costs, app_of, self.environment_of(), np.mean
        )
        predicted[self.models.index(SOLO)] = solos
        return Cases(apps, app_of, costs, solos, self.models, predicted)

    def variances(self) -> Floats:
        """(runs,): variance of the log of one run among the repeats in its environment."""
        groups = [record.values for record in self.measured]
        return np.repeat(repeat_variances(groups), [len(values) for values in groups])

    def truth(self) -> Floats:
        """(draws, runs): absolute log errors of a perfect predictor of single runs."""
        return errors_of_runs([record.values for record in self.measured])

    def without_marked(self) -> _Environments:
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
        return _Environments(tuple(measured), predicted, self.models, self.solo)


def _arranged(
    measured: Sequence[EnvironmentMeasurement],
    predicted: Sequence[EnvironmentPrediction],
    models: tuple[str, ...],
    solo: Mapping[str, float],
) -> _Environments:
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
                value=f"{record.app} in {record.environment}",
                allowed="one record for all runs of an application in an environment",
            )
        sizes[record.app, record.environment] = len(record.values)
        kind = kinds.setdefault(record.environment, (record.kind, record.synthetic))
        if kind != (record.kind, record.synthetic):
            raise InputError(
                f"of {record.environment} differs between its applications.",
                field="kind",
                value=[kind, (record.kind, record.synthetic)],
                allowed="one kind, real or synthetic",
            )
        if not (math.isfinite(solo.get(record.app, math.nan)) and solo[record.app] > 0.0):
            raise InputError(
                f"is missing or not a cost for {record.app}.",
                field="solo",
                value=solo.get(record.app),
                allowed="a finite number above 0 by application",
            )
    successful = tuple(record for record in ordered if record.values)
    return _Environments(successful, _by_key(predicted, sizes), models, solo)


def _by_key(
    predicted: Sequence[EnvironmentPrediction], sizes: Mapping[tuple[str, str], int]
) -> dict[tuple[str, str, str], EnvironmentPrediction]:
    by_key = once_each(
        predicted,
        lambda prediction: (prediction.app, prediction.environment, prediction.model),
        describe=lambda prediction: (
            f"{prediction.model} for {prediction.app} in {prediction.environment}"
        ),
        allowed="one record of a model for all runs in an environment",
    )
    for (app, environment, model), prediction in by_key.items():
        runs = sizes.get((app, environment))
        if runs is not None and runs != len(prediction.values):
            raise InputError(
                f"of {model} for {app} in {environment} do not match the runs.",
                field="values",
                value=len(prediction.values),
                allowed=f"{runs}, one for each successful run",
            )
    return by_key
