"""The forms that a stack averages: each fits a table of runs by itself."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import pairwise

import numpy as np

from kongming.arrays import Floats
from kongming.scale.fit.ernest import ErnestFit, fit_ernest, fitted_features
from kongming.scale.fit.local import fit_local
from kongming.scale.fit.nearest import fit_nearest
from kongming.scale.fit.neighbours import fit_neighbours
from kongming.scale.fit.power import fit_power
from kongming.scale.fit.residuals import Shape, fit_residuals
from kongming.scale.fit.robust import (
    LEAST_SCALE,
    fit_robust,
    inconsistency,
    robust_loss,
    solve_robust,
    weight_of,
)
from kongming.scale.fit.terms import Term, term
from kongming.scale.fit.validation import Fit
from kongming.scale.points import Runs

Form = Callable[[Runs], Fit]

PRIOR = {
    "ernest": 0.25,
    "ernest-relative": 3.0,
    "ernest-robust": 1.0,
    "ernest-local": 2.0,
    "cliff": 2.0,
    "superlinear": 0.5,
    "growth": 0.25,
    "traffic": 0.5,
    "saturating": 1.0,
    "universal-scalability": 0.25,
    "power-law": 0.25,
    "ernest-residuals": 0.5,
    "neighbours": 1.0,
    "nearest": 0.25,
}
"""Relative weights of the forms without evidence: nearly equal among those that are robust, less
for those that one far configuration can throw off. Chosen on generated tables
(benchmarks/scale/generated.py), proved on others."""

INSIDE_LEAST = 3
"""Minimum number of configurations below a cliff."""

STEPS_MOST = 12
"""Maximum number of places of a cliff that are tried."""

JUMP = 1.5
"""Minimum factor of a step that is taken for a cliff."""

TIE = 1e-6
"""Losses that differ by less (relative) are equal: rounding decides nothing."""

GAP_DIGITS = 9
"""Decimals by which gaps between loads differ: in a grid of machine counts and scales many are
equal but for rounding, which depends on the unit of the scale."""

POWERS = (0.5, 0.75, 1.0, 1.5, 2.0, 3.0)
"""Exponents of the load of a saturating (below 1) or superlinear (above 1) speed-up."""

_LOAD = "scale/machines"
_SUPERLINEAR = ("(scale/machines)**2", "(scale/machines)**4")
_SHARED = ("scale", "scale/machines", "scale*machines")
_GROWTH = ("machines**2",)
_TRAFFIC = ("scale", "scale*machines")


def forms_of(
    terms: Sequence[Term], items: float | None, *, shape: Shape | None = None
) -> dict[str, Form]:
    """Return the forms by name; ``shape`` is that of the residual process, None to search."""
    own = tuple(terms)

    def added(*keys: str) -> tuple[Term, ...]:
        present = {each.key for each in own}
        return (*own, *(term(key) for key in keys if key not in present))

    @lru_cache(maxsize=1)
    def robust(runs: Runs) -> ErnestFit:
        """Five forms start from it, one after the other for the same runs."""
        return fit_robust(runs, own, items)

    def process(runs: Runs) -> Fit:
        trend = robust(runs)
        return fit_residuals(runs, trend, shape, inconsistency(runs, trend))

    shared = tuple(term(key) for key in _SHARED)
    return {
        "ernest": lambda runs: fit_ernest(runs, own, items),
        "ernest-relative": lambda runs: fit_ernest(runs, own, items, relative=True, rounds=0),
        "ernest-robust": robust,
        "ernest-local": lambda runs: fit_local(runs, own, items, plain=robust(runs)),
        "cliff": lambda runs: fit_cliff(runs, own, items, plain=robust(runs)),
        "superlinear": lambda runs: fit_robust(runs, added(*_SUPERLINEAR), items),
        "growth": lambda runs: fit_robust(runs, added(*_GROWTH), items),
        "traffic": lambda runs: fit_robust(runs, added(*_TRAFFIC), items),
        "saturating": lambda runs: fit_saturating(runs, items),
        "universal-scalability": lambda runs: fit_robust(runs, shared, items),
        "power-law": fit_power,
        "ernest-residuals": process,
        "neighbours": lambda runs: fit_neighbours(runs, robust(runs)),
        "nearest": fit_nearest,
    }


def fit_cliff(
    runs: Runs, terms: Sequence[Term], items: float | None, *, plain: ErnestFit
) -> ErnestFit:
    """Fit a step in the load per machine, with at least one configuration beyond it; without one
    that multiplies times by ``JUMP``, ``plain``, the robust fit of the terms alone."""
    points, y, weights = runs.configurations, runs.typical, weight_of(runs)
    best, least = None, np.inf
    for low, high in _steps(points.load):
        cliff = float(np.sqrt(low * high))
        A = fitted_features(terms, points, items, cliff)
        coef = solve_robust(A, y, weights)
        fitted = np.maximum(A @ coef, plain.least)
        smooth = np.maximum(A[:, :-2] @ coef[:-2], plain.least)
        if float(np.max(fitted / smooth)) < JUMP:
            continue
        loss = robust_loss(np.log(fitted / y), weights, LEAST_SCALE)
        if loss < least * (1.0 - TIE):
            best, least = cliff, loss
    if best is None:
        return plain
    return fit_robust(runs, terms, items, cliff=best)


def _steps(load: Floats) -> list[tuple[float, float]]:
    """Return neighbouring loads that a cliff may lie between: the widest gaps."""
    loads = np.sort(load)
    pairs = [
        (low, high)
        for low, high in pairwise(loads.tolist()[INSIDE_LEAST - 1 :])
        if high > low * (1.0 + 1e-9)
    ]
    widest = sorted(pairs, key=lambda pair: round(pair[0] / pair[1], GAP_DIGITS))
    return sorted(widest[:STEPS_MOST])


def fit_saturating(runs: Runs, items: float | None) -> ErnestFit:
    """Fit serial time, time in proportion to the scale, and a power of the load."""
    best, least = None, np.inf
    for power in POWERS:
        key = _LOAD if power == 1.0 else f"(scale/machines)**{power:g}"
        fit = fit_robust(runs, [term("intercept"), term("scale"), term(key)], items)
        residual = np.log(fit.predict(runs.configurations) / runs.typical)
        # Mild preference for proportional speed-up.
        loss = float(np.sum(weight_of(runs) * np.minimum(np.abs(residual), 0.5)))
        loss += 0.01 * abs(np.log(power))
        if loss < least * (1.0 - TIE):
            best, least = fit, loss
    assert best is not None
    return best
