"""Ordered pairs of applications: what each costs beside the other, predicted and measured.

The layout is the paper's Table V; the repeat noise, trivial predictors, skill, heavy pairs,
regret and the coverage of intervals stand beside it.
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
from kongming.run import geometric_mean, noise_floor_pct


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
    """The JSON document of an evaluation over pairs; None stands for what is not defined.

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
        InputError: a pair or a prediction is there twice, no pair at all, an application has no
            solo time, or intervals of ``auto`` are of different levels.
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
    """What each application inflicts: the geometric mean slowdown of those measured beside it.

    Of a document of ``score_pairs``; applications that nothing was measured beside are left out,
    and so is an application beside itself.
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
        said = pairs.prediction(pair, AUTO)
        if said is None or said.lower is None or said.upper is None:
            bounds.append(None)
            continue
        bounds.append((said.lower, said.upper))
        levels.add(said.level)
    return interval_coverage(cases, bounds, levels)


def _marked(pairs: Pairs) -> dict[str, Any] | None:
    """The share of marked repeats, and the errors without them; None where nobody looked."""
    marks = [mark for pair in pairs.measured for mark in pair.marked]
    if not marks:
        return None
    left = pairs.without_marked()
    found: dict[str, Any] = {"share": float(np.mean(marks)), "pairs_left": 0}
    if left is None:
        return found | {"geomean_pct": dict.fromkeys(pairs.models), "noise_floor_pct": None}
    cases = left.cases()
    return found | {
        "pairs_left": len(left.measured),
        "geomean_pct": geomeans(cases, cases.quartiles()[1]),
        "noise_floor_pct": geometric(left.floors(cases)),
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
                model: _said(
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


def _said(value: float, error: float, prediction: PairPrediction | None) -> dict[str, Any]:
    said: dict[str, Any] = {
        "value": value,
        "error_pct": error,
        "lower": None,
        "upper": None,
        "level": None,
        "extrapolating": False,
    }
    if prediction is not None:
        said["lower"], said["upper"] = prediction.lower, prediction.upper
        said["level"] = None if prediction.lower is None else prediction.level
        said["extrapolating"] = prediction.extrapolating
    return said
