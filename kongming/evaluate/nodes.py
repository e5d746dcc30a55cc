"""Score predictions of one application in changing environments, each left out in turn: the paper's
Table IV.

A case is one run, since each run has its own fingerprint. Environments are cgroups, mixes of
programs, or instances; ``synthetic`` substitutes are scored separately.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from kongming.evaluate.cases import Cases, geometric, median
from kongming.evaluate.environment_cases import Environments, arranged
from kongming.evaluate.records import (
    EnvironmentMeasurement,
    EnvironmentPrediction,
    Scored,
)
from kongming.evaluate.skill import ratio
from kongming.evaluate.summary import (
    AUTO,
    document,
    geomeans,
    interval_coverage,
    model_order,
    summary,
    unpredicted,
)
from kongming.evaluate.trivial import MEAN, SOLO

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
    ``ratio_to_mean`` is a model's geomean over MEAN's, and ``skill`` the same with the noise floor
    taken off both, over the informative applications; their intervals are bootstrapped over
    applications.

    The noise floor is the error of a perfect predictor of the environment on single runs: the noise
    of repeats in one environment, median over environments. Changes between two runs in one
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
    everything = arranged(measured, predicted, models, solo)
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


def _figures(environments: Environments, seed: int) -> dict[str, Any]:
    cases = environments.cases()
    medians = cases.quartiles()[1]
    logs, ranks = cases.mean_abs_log_pct(), cases.spearman()
    ratios = {}
    for model, row in zip(cases.models, medians, strict=True):
        value, interval = ratio(row, medians[cases.models.index(MEAN)], seed=seed)
        ratios[model] = {"value": value, "interval": interval}
    return {
        **summary(cases, environments.floors(cases), trivial=MEAN, seed=seed),
        "ratio_to_mean": ratios,
        "all": {
            model: {"mean_abs_log_pct": logs[m], "spearman": ranks[m]}
            for m, model in enumerate(cases.models)
        },
        "per_environment": _per_environment(cases, environments),
        "coverage": _coverage(cases, environments),
        "marked": _marked(environments),
        "unpredicted": unpredicted(cases),
    }


def _per_environment(cases: Cases, environments: Environments) -> dict[str, dict[str, float]]:
    """{ENVIRONMENT: {MODEL: median error in per cent over all runs in it}}."""
    errors, environment_of = cases.errors, environments.environment_of()
    return {
        name: {
            model: median(errors[m, environment_of == e]) for m, model in enumerate(cases.models)
        }
        for e, name in enumerate(environments.names)
    }


def _coverage(cases: Cases, environments: Environments) -> dict[str, Any]:
    bounds: list[tuple[float, float] | None] = []
    levels = set()
    for record, k in environments.runs:
        prediction = environments.prediction(record, AUTO)
        if prediction is None or not prediction.lower:
            bounds.append(None)
            continue
        bounds.append((prediction.lower[k], prediction.upper[k]))
        levels.add(prediction.level)
    return interval_coverage(cases, bounds, levels)


def _marked(environments: Environments) -> dict[str, Any] | None:
    """Share of marked runs, and the errors without them; None if no run was checked."""
    marks = [mark for record in environments.measured for mark in record.marked]
    if not marks:
        return None
    unmarked = environments.without_marked()
    cases = unmarked.cases()
    return {
        "share": float(np.mean(marks)),
        "runs_left": len(cases.measured),
        "geomean_pct": geomeans(cases, cases.quartiles()[1]),
        "noise_floor_pct": geometric(unmarked.floors(cases)),
    }


def _rows(environments: Environments) -> list[dict[str, Any]]:
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
    }
    if prediction is not None and prediction.lower:
        entry["lower"], entry["upper"] = prediction.lower[run], prediction.upper[run]
        entry["level"] = prediction.level
    if prediction is not None and prediction.extrapolating:
        entry["extrapolating"] = prediction.extrapolating[run]
    return entry


def _environments(everything: Environments) -> list[dict[str, Any]]:
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
