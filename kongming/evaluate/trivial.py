"""Trivial predictors: what every model must beat, each at its own cost of measuring.

SOLO and MEAN need an application's own runs, AWAKE (``awake``) a few induced ones more. PAIRMEAN,
PAIRMEDIAN and ROW+COL use measured pairs, which a model of profiles does without: they cost n x n
runs and predict the pair that is left out.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from kongming.evaluate.cases import Floats

MEAN = "MEAN"
"""The paper's: the mean over the training runs."""

SOLO = "SOLO"
"""The solo time: no interference at all."""

PAIRMEAN = "PAIRMEAN"
"""The mean of the application's measured pairs, the scored partner left out."""

PAIRMEDIAN = "PAIRMEDIAN"
"""The median of the same: one heavy pair does not move it."""

ROWCOL = "ROW+COL"
"""A row effect of the application and a column effect of the partner, additive in logs, fitted by
least squares to all pairs but the scored one."""

AWAKE = "AWAKE"
"""The solo time, times the factor by which a program that waits runs next to a busy CPU."""

BUBBLE_UP = "BUBBLE-UP"
"""Of Mars et al. (MICRO 2011), as ``benchmarks/peers`` has it: its predictions are given."""

OF_OTHERS = (PAIRMEAN, PAIRMEDIAN)
"""What is the same for all of an application's partners, but for the one that is left out."""

OF_PAIRS = (PAIRMEAN, PAIRMEDIAN, ROWCOL)
"""Trivial predictors that are computed from the measured pairs."""

TRIVIAL = (MEAN, SOLO, *OF_PAIRS)
"""Trivial predictors that scoring computes."""

RIVALS = (SOLO, PAIRMEAN, PAIRMEDIAN, ROWCOL, AWAKE, BUBBLE_UP)
"""What a model must beat."""


def of_others(
    values: Floats,
    groups: NDArray[np.intp],
    left_out: NDArray[np.intp],
    combine: Callable[[Floats], float],
) -> Floats:
    """(n,): for each value, ``combine`` of the values in its group that are not left out with it.

    ``groups`` and ``left_out`` (n,) number the application and the unit that is scored together (a
    partner, an environment). NaN if there is no other value.
    """
    combined = np.full(len(values), np.nan)
    for i in range(len(values)):
        others = values[(groups == groups[i]) & (left_out != left_out[i])]
        if len(others):
            combined[i] = float(combine(others))
    return combined


def row_and_column(
    logs: Floats,
    rows: NDArray[np.intp],
    columns: NDArray[np.intp],
    known: NDArray[np.bool_] | None = None,
) -> Floats:
    """(n,): each log predicted by the sum of a row and a column effect of the others.

    ``known`` (n,) marks what may be fitted (default: all); the predicted one never is. NaN where
    the others do not determine the sum.
    """
    row_names, row = np.unique(rows, return_inverse=True)
    column_names, column = np.unique(columns, return_inverse=True)
    design = np.zeros((len(logs), len(row_names) + len(column_names)))
    every = np.arange(len(logs))
    design[every, row] = 1.0
    design[every, len(row_names) + column] = 1.0
    usable = np.ones(len(logs), dtype=np.bool_) if known is None else known
    fit = design[usable]
    inverse = np.linalg.pinv(fit.T @ fit, hermitian=True)
    effects = inverse @ (fit.T @ logs[usable])
    predicted = np.full(len(logs), np.nan)
    for i in every:
        spread = inverse @ design[i]
        determined = np.allclose(fit.T @ (fit @ spread), design[i], atol=1e-8)
        leverage = float(design[i] @ spread)
        if not determined:
            continue
        if not usable[i]:
            predicted[i] = float(design[i] @ effects)
        elif leverage < 1.0 - 1e-8:
            # Leaving one out of a least squares fit moves its prediction by the leverage.
            fitted = float(design[i] @ effects)
            predicted[i] = (fitted - leverage * logs[i]) / (1.0 - leverage)
    return predicted


def pair_predictors(
    costs: Floats, solos: Floats, app_of: NDArray[np.intp], neighbour_of: NDArray[np.intp]
) -> dict[str, Floats]:
    """(n,) predictions of the three that learn from the other pairs, all over ``costs``."""
    slowdowns = row_and_column(np.log(costs / solos), app_of, neighbour_of)
    return {
        PAIRMEAN: of_others(costs, app_of, neighbour_of, np.mean),
        PAIRMEDIAN: of_others(costs, app_of, neighbour_of, np.median),
        ROWCOL: solos * np.exp(slowdowns),
    }
