"""Score predictions for ordered pairs of co-located applications.

The layout is the paper's Table V, extended by the repeat noise, trivial predictors, skill, heavy
pairs, regret and the coverage of intervals.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from kongming.evaluate.cases import Cases, geometric
from kongming.evaluate.halves import HEAVY, LEAST_REPEATS, Halves, by_halves
from kongming.evaluate.pair_cases import Pairs
from kongming.evaluate.records import PairMeasurement, PairPrediction, Scored
from kongming.evaluate.summary import (
    AUTO,
    document,
    geomeans,
    interval_coverage,
    summary,
    unpredicted,
)
from kongming.evaluate.trivial import PAIRMEAN, TRIVIAL
from kongming.records.run import geometric_mean, noise_floor_pct


def score_pairs(
    measured: Sequence[PairMeasurement],
    predicted: Sequence[PairPrediction],
    *,
    solo: Mapping[str, float],
    training_mean: Mapping[str, float],
    repeats: int,
    chosen: Mapping[str, str],
    placement: str,
    node: Mapping[str, Any],
    runs: int,
    elapsed_s: float,
    scored: Scored,
    seed: int = 0,
) -> dict[str, Any]:
    """Return the JSON document of an evaluation over pairs; None for undefined figures.

    ``solo`` and ``training_mean`` (the mean cost over the training runs) are by application, on
    the scale of the measured values. MEAN, SOLO and PAIRMEAN are added here; predictions that
    arrive under these names are not used, except MEAN's for an application without a training
    mean. ``repeats`` is how many were asked for, ``runs`` and ``elapsed_s`` what they took;
    ``chosen`` says which model ``auto`` is, by application. ``placement``, ``node``, ``chosen``
    and ``scored`` are handed on. ``seed`` draws bootstrap samples, and halves of many repeats.

    Measured is the geometric mean of a pair's repeats, an error |predicted - measured| /
    measured in per cent, an application's figure the median over its partners, and ``geomean``
    is over applications (a figure below 0.001 per cent counts as that). A model is scored on the
    pairs that it predicted; ``unpredicted`` says how many it did not. ``uninformative``
    applications are also those without a noise floor or a second partner. Pairs without a
    successful repeat are listed in ``unmeasured``; predictions for them are not used. ``pairs``
    holds every number that was scored.

    Heavy pairs and regret need four repeats (``halves`` says how they are scored). PAIRMEAN has
    no regret: the mean without the scored partner is least for the worst one, which says nothing
    about choosing.

    Raises:
        InputError: a pair or a prediction occurs twice, there is no pair, an application has no
            solo time, or intervals of ``auto`` have different levels.
    """
    pairs = Pairs.of(measured, predicted, solo, training_mean)
    cases = pairs.cases()
    halves = None
    if repeats >= LEAST_REPEATS:
        halves = by_halves(cases, pairs.repeats(), seed=seed)
    return document(
        {
            "kind": "pairs",
            "placement": placement,
            "node": node,
            "apps": cases.apps,
            "runs": runs,
            "repeats": repeats,
            "elapsed_s": elapsed_s,
            "scored": scored,
            **summary(cases, pairs.floors(cases), trivial=PAIRMEAN, seed=seed),
            "all": _all(cases, halves),
            "perfect": {
                "heavy_pct": None if halves is None else halves.perfect_heavy,
                "regret_pct": None if halves is None else halves.perfect_regret,
            },
            "random_regret_pct": None if halves is None else halves.random_regret,
            "regret_noise_pct": None if halves is None else halves.regret_noise,
            "heavy_pairs": np.count_nonzero(cases.measured > HEAVY * cases.solo),
            "coverage": _coverage(cases, pairs),
            "chosen": chosen,
            "marked": _marked(pairs),
            "unpredicted": unpredicted(cases),
            "unmeasured": pairs.unmeasured,
            "pairs": _rows(cases, pairs),
        }
    )


def pressures(document: Mapping[str, Any]) -> dict[str, float]:
    """Pressure of each application: the geometric mean slowdown of those co-located with it.

    Computed from a document of ``score_pairs``; applications without a measured neighbour are left
    out, as are pairs of an application with itself.
    """
    inflicted: dict[str, list[float]] = {}
    for pair in document["pairs"]:
        if pair["app"] != pair["beside"]:
            inflicted.setdefault(pair["beside"], []).append(pair["slowdown"])
    return {app: geometric_mean(inflicted[app]) for app in sorted(inflicted)}


def _all(cases: Cases, halves: Halves | None) -> dict[str, dict[str, float | None]]:
    logs, ranks = cases.mean_abs_log_pct(), cases.spearman()
    return {
        model: {
            "mean_abs_log_pct": logs[m],
            "spearman": ranks[m],
            "heavy_pct": None if halves is None else halves.heavy[m],
            "regret_pct": None if halves is None or model == PAIRMEAN else halves.regret[m],
        }
        for m, model in enumerate(cases.models)
    }


def _coverage(cases: Cases, pairs: Pairs) -> dict[str, Any]:
    bounds: list[tuple[float, float] | None] = []
    levels = set()
    for pair in pairs.measured:
        prediction = pairs.prediction(pair, AUTO)
        if prediction is None or prediction.lower is None or prediction.upper is None:
            bounds.append(None)
            continue
        bounds.append((prediction.lower, prediction.upper))
        levels.add(prediction.level)
    return interval_coverage(cases, bounds, levels)


def _marked(pairs: Pairs) -> dict[str, Any] | None:
    """Share of marked repeats, and the errors without them; None if no repeat was checked."""
    marks = [mark for pair in pairs.measured for mark in pair.marked]
    if not marks:
        return None
    unmarked = pairs.without_marked()
    figures: dict[str, Any] = {"share": float(np.mean(marks)), "pairs_left": 0}
    if unmarked is None:
        return figures | {"geomean_pct": dict.fromkeys(pairs.models), "noise_floor_pct": None}
    cases = unmarked.cases()
    return figures | {
        "pairs_left": len(unmarked.measured),
        "geomean_pct": geomeans(cases, cases.quartiles()[1]),
        "noise_floor_pct": geometric(unmarked.floors(cases)),
    }


def _rows(cases: Cases, pairs: Pairs) -> list[dict[str, Any]]:
    errors = cases.errors
    return [
        {
            "app": pair.app,
            "beside": pair.beside,
            "measured": cases.measured[i],
            "slowdown": cases.measured[i] / cases.solo[i],
            "repeats": pair.values,
            "marked": pair.marked,
            "noise_floor_pct": noise_floor_pct(pair.values),
            "predictions": {
                model: _scored_prediction(
                    cases.predicted[m, i],
                    errors[m, i],
                    None if model in TRIVIAL else pairs.prediction(pair, model),
                )
                for m, model in enumerate(cases.models)
                if np.isfinite(cases.predicted[m, i])
            },
        }
        for i, pair in enumerate(pairs.measured)
    ]


def _scored_prediction(
    value: float, error: float, prediction: PairPrediction | None
) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "value": value,
        "error_pct": error,
        "lower": None,
        "upper": None,
        "level": None,
        "extrapolating": False,
    }
    if prediction is not None:
        entry["lower"], entry["upper"] = prediction.lower, prediction.upper
        entry["level"] = None if prediction.lower is None else prediction.level
        entry["extrapolating"] = prediction.extrapolating
    return entry
