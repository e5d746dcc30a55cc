"""Parts of the document common to pairs and environments: table, geomeans, floor, skill."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from kongming.evaluate.cases import Cases, Floats, geometric
from kongming.evaluate.coverage import coverage, one_level
from kongming.evaluate.skill import informative, skill
from kongming.evaluate.trivial import TRIVIAL

AUTO = "auto"
"""The model whose intervals are scored."""


def model_order(names: Sequence[str], trivial: Sequence[str]) -> tuple[str, ...]:
    """Order the models: trivial ones first, then the others as given, ``auto`` last.

    Other trivial predictors, which are not part of this evaluation, are dropped.
    """
    others = [name for name in names if name not in TRIVIAL and name != AUTO]
    last = [AUTO] if AUTO in names else []
    return tuple(dict.fromkeys([*trivial, *others, *last]))


def summary(cases: Cases, floors: Floats, *, trivial: str, seed: int) -> dict[str, Any]:
    """Compute table, geomean_pct, geomean_iqr_pct, noise_floor_pct, skill over ``trivial`` and
    uninformative.

    ``floors`` (apps,) in per cent, NaN without repeats.
    """
    low, medians, high = quartiles = cases.quartiles()
    reference = medians[cases.models.index(trivial)]
    is_informative = informative(reference, floors)
    skills = {}
    for model, row in zip(cases.models, medians, strict=True):
        value, interval = skill(
            row[is_informative], reference[is_informative], floors[is_informative], seed=seed
        )
        skills[model] = {"value": value, "interval": interval}
    return {
        "table": _table(cases, quartiles),
        "geomean_pct": geomeans(cases, medians),
        "geomean_iqr_pct": geomeans(cases, high - low),
        "noise_floor_pct": {
            "per_app": dict(zip(cases.apps, floors, strict=True)),
            "geomean": geometric(floors),
        },
        "skill": skills,
        "uninformative": [
            app for app, useful in zip(cases.apps, is_informative, strict=True) if not useful
        ],
    }


def geomeans(cases: Cases, figures: Floats) -> dict[str, float]:
    """{MODEL: geometric mean over applications} of ``figures`` (models, apps)."""
    return {model: geometric(row) for model, row in zip(cases.models, figures, strict=True)}


def unpredicted(cases: Cases) -> dict[str, int]:
    """Number of cases without a prediction, for the models that lack any."""
    missing = np.count_nonzero(np.isnan(cases.predicted), axis=1)
    return {model: int(n) for model, n in zip(cases.models, missing, strict=True) if n}


def interval_coverage(
    cases: Cases, bounds: Sequence[tuple[float, float] | None], levels: set[float]
) -> dict[str, Any]:
    """Coverage of ``auto``'s intervals: ``bounds`` (n,), None for no interval."""
    missing = (math.nan, math.nan)
    array = np.array([missing if pair is None else pair for pair in bounds], dtype=np.float64)
    lower, upper = array.reshape(-1, 2).T
    known = AUTO in cases.models
    predicted = cases.predicted[cases.models.index(AUTO)] if known else lower
    return coverage(cases.measured, lower, upper, predicted, cases.app_of, one_level(levels))


def document(entries: Mapping[str, Any]) -> dict[str, Any]:
    """Convert ``entries`` to JSON types; NaN and infinities, which JSON lacks, become None."""
    return {key: _jsonable(value) for key, value in entries.items()}


def _table(cases: Cases, quartiles: Floats) -> dict[str, dict[str, dict[str, float]]]:
    """{APP: {MODEL: {median_pct, iqr_pct}}}, the layout of Tables IV and V."""
    return {
        app: {
            model: {
                "median_pct": quartiles[1, m, a],
                "iqr_pct": quartiles[2, m, a] - quartiles[0, m, a],
            }
            for m, model in enumerate(cases.models)
        }
        for a, app in enumerate(cases.apps)
    }


def _jsonable(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _jsonable(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_jsonable(item) for item in value]
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
