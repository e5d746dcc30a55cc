"""Ernest's model: a non-negative combination of terms, in seconds or in relative error.

Ernest (NSDI 2016), section 3.1. With a cliff the fit is piecewise: above some scale per machine, a
step and an additional slope are added, neither below 0.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.optimize import nnls

from kongming.arrays import Floats
from kongming.scale.fit.terms import Term, matrix
from kongming.scale.points import Points, Runs

REWEIGHTED = 4
"""Rounds of reweighting in the relative fit: weights of one over the prediction do not follow the
noise as weights of one over the measured time do."""

NOTHING = 1e-9
"""Terms that add less than this share of the shortest time anywhere are what rounding leaves."""

FLOOR = 1e-3
"""Lower bound of a prediction, as a share of the shortest run: it keeps predictions above 0 s."""

Solver = Callable[[Floats, Floats], Floats]
"""(n, p) features and (n,) times to (p,) coefficients."""

EQUAL_LOSS = 1e-9
"""Fits whose losses differ by less than this share are equally good."""

ALIKE = 1e-10
"""Columns whose cosine is nearer to 1 than this are multiples of each other."""


@dataclass(frozen=True, eq=False, slots=True)
class ErnestFit:
    """A fitted combination. ``coef`` has one value per term, plus two for a ``cliff`` (scale per
    machine); ``least`` is the lower bound of its predictions."""

    terms: tuple[Term, ...]
    coef: Floats
    items: float | None
    relative: bool
    least: float
    cliff: float | None = None

    @property
    def kind(self) -> str:
        if self.cliff is not None:
            return "ernest-piecewise"
        return "ernest-relative" if self.relative else "ernest"

    @property
    def active(self) -> int:
        """Number of coefficients above 0."""
        return int(np.count_nonzero(self.coef))

    def features(self, points: Points) -> Floats:
        """(n, p) in the order of ``coef``."""
        return features_of(self.terms, points, self.items, self.cliff)

    def predict(self, points: Points) -> Floats:
        """(n,) seconds per iteration."""
        return np.maximum(self.features(points) @ self.coef, self.least)

    def document(self) -> dict[str, Any]:
        return {
            "terms": [term.key for term in self.terms],
            "coef": self.coef.tolist(),
            "items": self.items,
            "relative": self.relative,
            "least": self.least,
            "cliff": self.cliff,
        }


def fit_ernest(
    runs: Runs,
    terms: Sequence[Term],
    items: float | None = None,
    *,
    relative: bool = False,
    cliff: float | None = None,
    rounds: int = REWEIGHTED,
) -> ErnestFit:
    """Fit all runs by non-negative least squares; errors in seconds, or relative to the time.

    ``rounds`` of reweighting follow a relative fit; with 0 errors are relative to the measured
    time, so that a run far above its prediction counts little.
    """
    A = fitted_features(terms, runs.points, items, cliff)
    y = runs.unit_seconds
    solver = solver_of(cliff)
    coef = _relative(A, y, rounds, solver) if relative else solver(A, y)
    adds = coef * np.max(np.abs(A), axis=0, initial=0.0)
    coef = np.where(adds > NOTHING * float(y.min()), coef, 0.0)
    return ErnestFit(tuple(terms), coef, items, relative, FLOOR * float(y.min()), cliff)


def _relative(A: Floats, y: Floats, rounds: int, solver: Solver) -> Floats:
    weights = 1.0 / y
    coef = solver(A * weights[:, None], y * weights)
    least = FLOOR * float(y.min())
    for _ in range(rounds):
        weights = 1.0 / np.maximum(A @ coef, least)
        # Bounded, or a run far above its prediction could get a thousand times the weight.
        weights = np.clip(weights, 0.5 / y, 2.0 / y)
        previous, coef = coef, solver(A * weights[:, None], y * weights)
        if np.allclose(previous, coef, rtol=1e-9, atol=0.0):
            break
    return coef


def solve(A: Floats, y: Floats) -> Floats:
    """(p,) non-negative least squares; columns may differ in magnitude."""
    size = np.max(np.abs(A), axis=0, initial=0.0)
    size[size == 0.0] = 1.0
    scaled = A / size
    coef, _ = nnls(scaled, y, maxiter=30 * max(10, A.shape[1]))
    used = coef > 0.0
    if used.any():
        # NNLS solves normal equations; solving again for the positive coefficients by an
        # orthogonal method restores the last digits.
        exact, *_ = np.linalg.lstsq(scaled[:, used], y, rcond=None)
        if (exact >= 0.0).all() and _loss(scaled[:, used], exact, y) <= _loss(scaled, coef, y):
            coef[used] = exact
    return np.asarray(coef / size, dtype=np.float64)


def solve_each(A: Floats, ys: Floats) -> Floats:
    """(k, p) as ``solve`` for each of ``ys`` (k, n); what depends on the features is done once."""
    size = np.max(np.abs(A), axis=0, initial=0.0)
    size[size == 0.0] = 1.0
    scaled = A / size
    limit = 30 * max(10, A.shape[1])
    coefs = np.array([nnls(scaled, y, maxiter=limit)[0] for y in ys]).reshape(len(ys), A.shape[1])
    used = coefs > 0.0
    for pattern in np.unique(used, axis=0):
        if not pattern.any():
            continue
        rows = np.flatnonzero((used == pattern).all(axis=1))
        exact = np.zeros((len(rows), A.shape[1]))
        exact[:, pattern] = np.linalg.lstsq(scaled[:, pattern], ys[rows].T, rcond=None)[0].T
        losses = (
            np.sum((candidate @ scaled.T - ys[rows]) ** 2, axis=1)
            for candidate in (exact, coefs[rows])
        )
        better = (exact >= 0.0).all(axis=1) & np.less_equal(*losses)
        coefs[rows[better]] = exact[better]
    return np.asarray(coefs / size, dtype=np.float64)


def solver_of(cliff: float | None) -> Solver:
    """Return the function that fits the coefficients. A cliff leaves few runs for each of them."""
    return solve if cliff is None else solve_by_earliest


def solve_by_earliest(A: Floats, y: Floats) -> Floats:
    """(p,) as ``solve``, by the earliest of the columns that fit equally well.

    At two machine counts three functions of them describe the same, and rounding in the units of
    the times would choose, which predicts other times at other counts.
    """
    coef = solve(A, y)
    least = _loss(A, coef, y) * (1.0 + EQUAL_LOSS) + (EQUAL_LOSS * float(np.sum(np.abs(y)))) ** 2
    used = np.ones(A.shape[1], dtype=bool)
    for last in reversed(range(A.shape[1])):
        used[last] = False
        if coef[last] == 0.0:
            continue
        other = solve(np.where(used, A, 0.0), y)
        if _loss(A, other, y) <= least:
            coef = other
        else:
            used[last] = True
    return coef


def _loss(A: Floats, coef: Floats, y: Floats) -> float:
    return float(np.sum((A @ coef - y) ** 2))


def with_cliff(A: Floats, points: Points, cliff: float) -> Floats:
    """(n, p + 2) features with the step and the slope beyond the cliff."""
    beyond = points.load > cliff
    slope = np.where(beyond, points.load - cliff, 0.0)
    return np.column_stack([A, beyond.astype(np.float64), slope])


def told_apart(A: Floats) -> Floats:
    """(n, p) features without those that are a multiple of an earlier one (0 instead): which of the
    two were used, rounding would decide. So is a cliff's slope at a single load beyond it, which is
    the step in other units, and the scale where all runs have the same, which is the intercept."""
    size = np.linalg.norm(A, axis=0)
    size[size == 0.0] = 1.0
    unit = A / size
    alike = np.triu(unit.T @ unit, 1) > 1.0 - ALIKE
    return np.asarray(np.where(alike.any(axis=0), 0.0, A))


def fitted_features(
    terms: Sequence[Term], points: Points, items: float | None, cliff: float | None
) -> Floats:
    """(n, p) features that a fit can tell apart by these points."""
    return told_apart(features_of(terms, points, items, cliff))


def features_of(
    terms: Sequence[Term], points: Points, items: float | None, cliff: float | None
) -> Floats:
    """(n, p) features of the terms, and of a cliff if there is one."""
    A = matrix(terms, points, items)
    return A if cliff is None else with_cliff(A, points, cliff)
