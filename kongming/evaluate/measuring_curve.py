"""Error against minutes of measuring: a share of the pairs predicts the others, or is measured."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from kongming.evaluate.cases import Cases, Floats
from kongming.evaluate.noise import Repeats
from kongming.evaluate.trivial import PAIRMEDIAN, ROWCOL, row_and_column

MEASURED = "measured"
"""Each pair predicted by its own first repeats: what measuring all pairs buys."""

_DRAWS = 20
"""Random choices of the known pairs."""

Curve = Sequence[tuple[float, float]]
"""Minutes of measuring, and the mean absolute log error in per cent."""


def measuring_curves(
    cases: Cases,
    neighbour_of: NDArray[np.intp],
    repeats: Repeats,
    minutes: float | None,
    *,
    seed: int,
) -> dict[str, Curve]:
    """Compute the curves of predictors that measure pairs; empty if the minutes are not known.

    ``minutes`` is what all repeats of all pairs took. PAIRMEDIAN and ROW+COL know k random partners
    of every application, with all their repeats, and are scored on the other pairs (the solo time
    where the known pairs determine nothing). ``MEASURED`` is r repeats of every pair against the
    mean of its others.
    """
    most = int(np.max(np.bincount(cases.app_of)))
    if minutes is None:
        return {}
    logs = np.log(cases.measured / cases.solo)
    drawn = np.random.default_rng(seed)
    curves: dict[str, list[tuple[float, float]]] = {PAIRMEDIAN: [], ROWCOL: [], MEASURED: []}
    for k in range(1, most):
        errors: dict[str, list[float]] = {PAIRMEDIAN: [], ROWCOL: []}
        for _ in range(_DRAWS):
            known = _known(cases.app_of, k, drawn)
            if known.all():
                continue
            predicted = row_and_column(logs, cases.app_of, neighbour_of, known)
            medians = [np.median(logs[known & cases.of_app(a)]) for a in range(len(cases.apps))]
            for model, row in ((ROWCOL, predicted), (PAIRMEDIAN, np.array(medians)[cases.app_of])):
                missed = np.abs(np.nan_to_num(row) - logs)[~known]
                errors[model].append(100.0 * float(np.mean(missed)))
        for model, values in errors.items():
            if values:
                curves[model].append((minutes * k / most, float(np.mean(values))))
    fewest = min(map(len, repeats))
    for r in range(1, fewest // 2 + 1):
        error = float(np.mean([_split_error(np.log(values), r) for values in repeats]))
        curves[MEASURED].append((minutes * r / float(np.mean([*map(len, repeats)])), 100.0 * error))
    return {model: curve for model, curve in curves.items() if curve}


def _known(app_of: NDArray[np.intp], k: int, drawn: np.random.Generator) -> NDArray[np.bool_]:
    known = np.zeros(len(app_of), dtype=np.bool_)
    for a in np.unique(app_of):
        known[drawn.permutation(np.flatnonzero(app_of == a))[:k]] = True
    return known


def _split_error(logs: Floats, r: int) -> float:
    """Mean |mean of r consecutive repeats - mean of the others|, over all starts."""
    starts = [np.roll(logs, shift) for shift in range(len(logs))]
    return float(np.mean([abs(np.mean(s[:r]) - np.mean(s[r:])) for s in starts]))
