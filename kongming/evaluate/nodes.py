"""One application in changing environments, each left out in turn: the paper's Table IV.

A case is one run, for each has a fingerprint of its own. Environments are cgroups, mixes of
programs, or instances; those that only stand in for them (``synthetic``) are scored apart.
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
    """The JSON document of an evaluation over environments; None stands for what is not defined.

    An error is |predicted - measured| / measured of one run in per cent; an application's figure
    is the median over all its runs, each predicted by a model that was not trained on its
    environment. MEAN, added here, is the mean over the application's runs in the other
    environments, and SOLO its ``solo`` time; predictions under these names are not used.
    ``ratio_to_mean`` is a model's geomean over MEAN's, and ``skill`` the same with the noise floor
    taken off both, over the informative applications; their intervals are bootstrapped over
    applications.

    The noise floor is what a perfect predictor of the environment would be off by on single
    runs: that of repeats in one environment, median over environments. What changes between two
    runs in one environment counts as noise, so a model that sees the change may err by less.

    The figures at the top are those of real environments; ``synthetic`` holds the same for the
    others, None where there are none. ``scored_runs`` holds every number that was scored. The
    other arguments are as ``score_pairs``'s.

    Raises:
        InputError: a record is there twice, nothing was measured, an application has no solo
            time, predictions do not match the runs in number, an environment is of two kinds, or
            intervals of ``auto`` are of different levels.
    """
    models = model_order([one.model for one in predicted], _TRIVIAL)
    everything = arranged(measured, predicted, models, solo)
    real = everything.part(synthetic=False)
    synthetic = everything.part(synthetic=True)
    return document(
        {
            "kind": "nodes",
            "placement": placement,
            "node": node,
            "apps": list(dict.fromkeys(one.app for one in everything.measured)),
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
    for one, k in environments.runs:
        said = environments.prediction(one, AUTO)
        if said is None or not said.lower:
            bounds.append(None)
            continue
        bounds.append((said.lower[k], said.upper[k]))
        levels.add(said.level)
    return interval_coverage(cases, bounds, levels)


def _marked(environments: Environments) -> dict[str, Any] | None:
    """The share of marked runs, and the errors without them; None where nobody looked."""
    marks = [mark for one in environments.measured for mark in one.marked]
    if not marks:
        return None
    left = environments.without_marked()
    cases = left.cases()
    return {
        "share": float(np.mean(marks)),
        "runs_left": len(cases.measured),
        "geomean_pct": geomeans(cases, cases.quartiles()[1]),
        "noise_floor_pct": geometric(left.floors(cases)),
    }


def _rows(environments: Environments) -> list[dict[str, Any]]:
    cases = environments.cases()
    errors = cases.errors
    return [
        {
            "app": one.app,
            "environment": one.environment,
            "kind": one.kind,
            "synthetic": one.synthetic,
            "run": k,
            "measured": one.values[k],
            "slowdown": one.values[k] / cases.solo[i],
            "marked": one.marked[k] if one.marked else None,
            "predictions": {
                model: _said(
                    cases.predicted[m, i],
                    errors[m, i],
                    None if model in _TRIVIAL else environments.prediction(one, model),
                    k,
                )
                for m, model in enumerate(cases.models)
                if np.isfinite(cases.predicted[m, i])
            },
        }
        for i, (one, k) in enumerate(environments.runs)
    ]


def _said(
    value: float, error: float, prediction: EnvironmentPrediction | None, run: int
) -> dict[str, Any]:
    said: dict[str, Any] = {
        "value": value,
        "error_pct": error,
        "lower": None,
        "upper": None,
        "level": None,
        "extrapolating": False,
    }
    if prediction is not None and prediction.lower:
        said["lower"], said["upper"] = prediction.lower[run], prediction.upper[run]
        said["level"] = prediction.level
    if prediction is not None and prediction.extrapolating:
        said["extrapolating"] = prediction.extrapolating[run]
    return said


def _environments(everything: Environments) -> list[dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    for one in sorted(everything.measured, key=lambda one: one.environment):
        entry = found.setdefault(
            one.environment,
            {
                "name": one.environment,
                "kind": one.kind,
                "synthetic": one.synthetic,
                "apps": [],
                "runs": 0,
            },
        )
        entry["apps"].append(one.app)
        entry["runs"] += len(one.values)
    return list(found.values())
