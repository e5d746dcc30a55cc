"""Parts of the document common to pairs and environments: table, geomeans, floor, skill."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kongming.evaluate.cases import Cases, Floats, floored, geometric
from kongming.evaluate.coverage import coverage
from kongming.evaluate.excess import excess
from kongming.evaluate.skill import skill
from kongming.evaluate.trivial import AWAKE, TRIVIAL
from kongming.learning.registry import AUTO


def model_order(names: Sequence[str], trivial: Sequence[str]) -> tuple[str, ...]:
    """Order the models: trivial ones first, then the others as given, ``auto`` last.

    Other trivial predictors, which are not part of this evaluation, are dropped.
    """
    others = [name for name in names if name not in (*TRIVIAL, AWAKE, AUTO)]
    awake = [AWAKE] if AWAKE in names else []
    last = [AUTO] if AUTO in names else []
    return tuple(dict.fromkeys([*trivial, *awake, *others, *last]))


def summary(
    cases: Cases,
    floors: Floats,
    variances: Floats,
    neighbour_of: NDArray[np.intp],
    *,
    trivial: str,
    seed: int,
) -> dict[str, Any]:
    """Compute excess, noise, table, geomean_pct, floored_geomean_pct, geomean_iqr_pct,
    noise_floor_pct and skill over ``trivial``.

    ``floors`` (apps,) in per cent, NaN without repeats; ``variances`` (n,) of the measured logs;
    ``neighbour_of`` (n,) numbers the other side of a case.
    """
    low, medians, high = quartiles = cases.quartiles()
    reference = medians[cases.models.index(trivial)]
    beyond = excess(cases, variances, neighbour_of, seed=seed)
    skills = {}
    for model, row in zip(cases.models, medians, strict=True):
        value, interval = skill(row, reference, floors, seed=seed)
        skills[model] = {"value": value, "interval": interval}
    return {
        "excess": {
            model: {"value": value, "interval": tuple(interval)}
            for model, value, interval in zip(
                cases.models, beyond.values, beyond.intervals, strict=True
            )
        },
        "noise": {"share_of_solo": beyond.noise_share, "too_noisy": beyond.too_noisy},
        "table": _table(cases, quartiles),
        "geomean_pct": geomeans(cases, medians),
        "floored_geomean_pct": geomeans(cases, floored(medians, floors)),
        "geomean_iqr_pct": geomeans(cases, high - low),
        "noise_floor_pct": {
            "per_app": dict(zip(cases.apps, floors, strict=True)),
            "geomean": geometric(floors),
        },
        "skill": skills,
    }


def geomeans(cases: Cases, figures: Floats) -> dict[str, float]:
    """{MODEL: geometric mean over applications} of ``figures`` (models, apps)."""
    return {model: geometric(row) for model, row in zip(cases.models, figures, strict=True)}


def unpredicted(cases: Cases) -> dict[str, int]:
    """Number of cases without a prediction, for the models that lack any."""
    missing = np.count_nonzero(np.isnan(cases.predicted), axis=1)
    return {model: int(n) for model, n in zip(cases.models, missing, strict=True) if n}


def interval_coverage(
    cases: Cases,
    bounds: Sequence[tuple[float, float] | None],
    measured: Sequence[Sequence[float]],
    at_least: Sequence[bool],
) -> dict[str, Any]:
    """Coverage of ``auto``'s intervals over ``measured`` costs of each case, one or more.

    ``bounds`` (n,), None for no interval; ``at_least`` (n,) where there is no upper one.
    """
    missing = (math.nan, math.nan)
    array = np.array([missing if pair is None else pair for pair in bounds], dtype=np.float64)
    counts = [len(costs) for costs in measured]
    lower, upper = np.repeat(array.reshape(-1, 2), counts, axis=0).T
    known = AUTO in cases.models
    predicted = cases.predicted[cases.models.index(AUTO)] if known else cases.solo
    return coverage(
        np.array([cost for costs in measured for cost in costs], dtype=np.float64),
        lower,
        upper,
        np.repeat(predicted, counts),
        np.repeat(cases.app_of, counts),
        np.repeat(np.array(at_least, dtype=np.bool_), counts),
    )


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
