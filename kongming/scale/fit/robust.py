"""Non-negative fits of the log of the time under a robust loss.

Iteratively reweighted least squares: Huber's loss until the scale of the residuals settles, then
Tukey's biweight where there are enough configurations (Maronna, Martin and Yohai 2006, section
4.4). A configuration that the others contradict, as one across a memory cliff, loses its weight.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy.optimize import nnls

from kongming.arrays import Floats
from kongming.scale.fit.ernest import FLOOR, ErnestFit, fitted_features, solve
from kongming.scale.fit.terms import Term
from kongming.scale.points import Runs

ROUNDS = 8
HUBER = 1.5
TUKEY = 4.7
LEAST_SCALE = 0.02
"""Residuals (in logs) below about this are noise in any table: they lose no weight."""

ENOUGH = 3
"""Configurations beyond the number of positive coefficients from which Tukey's loss is used."""

DIGITS = 12
"""Decimals of features (the largest is 1) and of logs of times."""

_LEAST_WEIGHT = 1e-4


def fit_robust(
    runs: Runs,
    terms: Sequence[Term],
    items: float | None = None,
    *,
    nearness: Floats | None = None,
    cliff: float | None = None,
) -> ErnestFit:
    """Fit the configurations' typical times; ``nearness`` (count,) are further weights."""
    A = fitted_features(terms, runs.configurations, items, cliff)
    y = runs.typical
    coef = solve_robust(A, y, weight_of(runs) * (1.0 if nearness is None else nearness))
    return ErnestFit(tuple(terms), coef, items, True, FLOOR * float(y.min()), cliff)


def weight_of(runs: Runs) -> Floats:
    """(count,) weights of configurations: repeats lessen the noise, but not the misfit."""
    return np.asarray(2.0 * runs.repeats / (runs.repeats + 1.0), dtype=np.float64)


def solve_robust(A: Floats, y: Floats, weights: Floats) -> Floats:
    """(p,) coefficients >= 0 of features ``A`` (n, p) that minimise the robust loss of the log of
    predicted over ``y`` (n,)."""
    size = np.max(np.abs(A), axis=0, initial=0.0)
    size[size == 0.0] = 1.0
    # Where several solutions are as good, as with fewer configurations than terms, the last digits
    # decide between them; those depend on the units.
    level = float(np.mean(np.log(y)))
    ratios = np.exp(np.round(np.log(y) - level, DIGITS))
    B = np.round(A / size, DIGITS) / ratios[:, None]
    n = len(y)
    own = weights
    coef = np.zeros(A.shape[1])
    for step in range(ROUNDS):
        root = np.sqrt(own)
        previous = coef
        coef, _ = nnls(B * root[:, None], root, maxiter=300)
        ratio = np.maximum(B @ coef, 1e-3)
        residual = np.log(ratio)
        if np.abs(coef - previous).max() <= 1e-4 * coef.max():
            break
        active = int(np.count_nonzero(coef))
        scale = max(1.4826 * _weighted_median(np.abs(residual), weights), LEAST_SCALE)
        scale *= np.sqrt(n / max(n - active, 1))
        relative = np.abs(residual) / scale
        if step < ROUNDS // 2 or n < active + ENOUGH:
            robust = 1.0 / np.maximum(relative / HUBER, 1.0)
        else:
            robust = np.maximum(1.0 - (relative / TUKEY) ** 2, 0.0) ** 2
        # (log r)^2 as a weighted (r - 1)^2.
        bent = np.where(np.abs(ratio - 1.0) < 1e-6, 1.0, residual / (ratio - 1.0 + 1e-300)) ** 2
        own = weights * np.maximum(robust, _LEAST_WEIGHT) * bent
    root = np.sqrt(own)
    coef = solve(B * root[:, None], root) * (np.exp(level) / size)
    return np.asarray(coef, dtype=np.float64)


def inconsistency(runs: Runs, fit: ErnestFit) -> Floats:
    """(count,) how far each configuration is from a robust fit, squared, in units of three times
    the scale of the residuals: well above 1 for one that the others contradict."""
    residual = np.abs(np.log(fit.predict(runs.configurations) / runs.typical))
    free = np.sqrt(runs.count / max(runs.count - fit.active, 1))
    scale = max(1.4826 * _weighted_median(residual, weight_of(runs)) * free, 2.0 * LEAST_SCALE)
    return np.asarray((residual / (3.0 * scale)) ** 2, dtype=np.float64)


def robust_loss(residual: Floats, weights: Floats, scale: float) -> float:
    """Return Tukey's loss, in units of squared scales, at most TUKEY^2 / 6 each."""
    u = np.minimum(np.abs(residual) / (scale * TUKEY), 1.0)
    return float(np.sum(weights * (1.0 - (1.0 - u**2) ** 3)) * TUKEY**2 / 6.0)


def _weighted_median(values: Floats, weights: Floats) -> float:
    order = np.argsort(values)
    total = np.cumsum(weights[order])
    return float(values[order][np.searchsorted(total, 0.5 * total[-1])])
