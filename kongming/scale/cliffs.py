"""Where a job stops fitting into memory: from one load per machine upward it is far slower.

Ernest's terms are smooth and cross such a cliff unaware. With enough runs on both sides the fit is
piecewise; with one or two beyond it, the model ends there and says so.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from kongming.dataset import Floats
from kongming.scale.ernest import ErnestFit, fit_ernest, solve, with_cliff
from kongming.scale.points import Integers, Runs
from kongming.scale.terms import Term, matrix

__all__ = ["Edge", "find_edge", "fit_piecewise", "is_cliff"]

SIDE = 3
"""Configurations on each side without which a piecewise fit is not tried."""

JUMP = 1.5
"""Runs beyond an edge take at least so many times what the others foretell."""

KNOWN_WELL = 0.15
"""The others foretell each other within this error (in logs), or nothing is said of an edge."""


@dataclass(frozen=True, slots=True)
class Edge:
    """Loads per machine (scale / machines): the largest that is modelled, the smallest beyond
    the cliff, and how many times slower than foretold it was."""

    inside: float
    beyond: float
    times: float


def fit_piecewise(
    runs: Runs, terms: Sequence[Term], items: float | None = None
) -> ErnestFit | None:
    """The best relative fit with one cliff; None without enough runs on both sides of any."""
    loads = _loads(runs)
    plain = matrix(terms, runs.points, items)
    ones = np.ones(len(runs))
    weights = 1.0 / runs.unit_seconds
    best: float | None = None
    least = np.inf
    for at in range(SIDE - 1, len(loads) - SIDE):
        if loads[at + 1] <= loads[at] * (1.0 + 1e-9):
            continue
        cliff = float(np.sqrt(loads[at] * loads[at + 1]))
        # Weighted by the measured times alone: enough to find the place.
        A = with_cliff(plain, runs.points, cliff) * weights[:, None]
        loss = float(np.sum((A @ solve(A, ones) - 1.0) ** 2))
        if loss < least * (1.0 - 1e-9):
            best, least = cliff, loss
    return None if best is None else fit_ernest(runs, terms, items, relative=True, cliff=best)


def is_cliff(fit: ErnestFit | None, runs: Runs) -> bool:
    """Whether some run beyond the step takes ``JUMP`` times what it would take without."""
    if fit is None or fit.cliff is None:
        return False
    A = fit.features(runs.configurations)
    smooth = np.maximum(A[:, :-2] @ fit.coef[:-2], fit.least)
    return bool(np.max(A @ fit.coef / smooth) >= JUMP)


def find_edge(runs: Runs, terms: Sequence[Term], items: float | None = None) -> Edge | None:
    """An edge with one or two configurations beyond it, all slower than the rest foretells."""
    loads = runs.configurations.load
    order = np.argsort(loads)
    for beyond in (1, 2):
        inner, outer = order[:-beyond], order[-beyond:]
        if len(inner) < 2 * SIDE or loads[outer].min() <= loads[inner].max() * (1.0 + 1e-9):
            continue
        rest = runs.within(inner)
        if _misfit(rest, terms, items) > KNOWN_WELL:
            continue
        fit = fit_ernest(rest, terms, items, relative=True)
        ratio = runs.typical[outer] / fit.predict(runs.configurations.take(outer))
        if float(ratio.min()) >= JUMP and not _told_by_both_sides(runs, outer, terms, items):
            return Edge(
                float(loads[inner].max()), float(loads[outer].min()), float(np.median(ratio))
            )
    return None


def _told_by_both_sides(
    runs: Runs, outer: Integers, terms: Sequence[Term], items: float | None
) -> bool:
    """Whether a piecewise fit foretells each of the outer configurations without having seen it:
    then the cliff is nearer, and there is enough behind it."""
    for one in outer:
        fit = fit_piecewise(runs.without([one]), terms, items)
        if fit is None:
            return False
        told = float(fit.predict(runs.configurations.take([one]))[0])
        if abs(float(np.log(told / runs.typical[one]))) > 2.0 * KNOWN_WELL:
            return False
    return True


def _misfit(runs: Runs, terms: Sequence[Term], items: float | None) -> float:
    """Mean absolute log error of leaving one configuration out."""
    errors = [
        abs(
            float(
                np.log(
                    fit_ernest(runs.without([i]), terms, items, relative=True).predict(
                        runs.configurations.take([i])
                    )[0]
                    / runs.typical[i]
                )
            )
        )
        for i in range(runs.count)
    ]
    return float(np.mean(errors))


def _loads(runs: Runs) -> Floats:
    return np.sort(runs.configurations.load)
