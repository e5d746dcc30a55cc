"""Detect memory cliffs: loads per machine above which a job is far slower.

Ernest's terms are smooth and cannot describe such a step. With enough runs on both sides the fit is
piecewise; with one or two runs beyond the cliff, the model does not predict beyond it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from kongming.arrays import Floats
from kongming.scale.fit.ernest import ErnestFit, fit_ernest, solve, told_apart, with_cliff
from kongming.scale.fit.terms import Term, matrix
from kongming.scale.fit.validation import folds_of, held_out, log_errors
from kongming.scale.points import Integers, Points, Runs

SIDE = 3
"""Minimum number of configurations on each side for a piecewise fit."""

JUMP = 1.5
"""Minimum ratio of the measured to the predicted time beyond an edge."""

KNOWN_WELL = 0.15
"""Largest leave-one-out error (in logs) of the remaining runs at which an edge can be detected."""

COUNTS_LEAST, REACH = 3, 2.0
"""Minimum number of machine counts inside of an edge, and how far outside of them (a factor) those
beyond it may be: farther away the terms' prediction of them is no evidence."""

FOLDS_MOST = 60
"""Maximum number of fits that estimate a leave-one-out error: of more configurations several are
left out at a time."""

WORSE = 1.2
"""Where the terms describe all runs there is no edge: fitted to all of them they have to miss one
by so many times what they miss inside, and by half a ``JUMP`` (in logs)."""


@dataclass(frozen=True, slots=True)
class Edge:
    """Loads per machine (scale / machines): the largest that is modelled, the smallest beyond the
    cliff, and the ratio of the measured to the predicted time there."""

    inside: float
    beyond: float
    times: float


def fit_piecewise(
    runs: Runs, terms: Sequence[Term], items: float | None = None
) -> ErnestFit | None:
    """Fit the best relative model with one cliff; None without enough runs on both sides of any."""
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
        # Weighting by the measured times suffices to locate the cliff.
        A = told_apart(with_cliff(plain, runs.points, cliff)) * weights[:, None]
        loss = float(np.sum((A @ solve(A, ones) - 1.0) ** 2))
        if loss < least * (1.0 - 1e-9):
            best, least = cliff, loss
    return None if best is None else fit_ernest(runs, terms, items, relative=True, cliff=best)


def find_edge(runs: Runs, terms: Sequence[Term], items: float | None = None) -> Edge | None:
    """Find an edge with one or two configurations beyond it, all slower than the rest predicts,
    where the rest can predict them and no single fit describes both."""
    loads = runs.configurations.load
    order = np.argsort(loads)
    for beyond in (1, 2):
        inner, outer = order[:-beyond], order[-beyond:]
        if len(inner) < 2 * SIDE or loads[outer].min() <= loads[inner].max() * (1.0 + 1e-9):
            continue
        rest = runs.within(inner)
        if _misfit(rest, terms, items) > KNOWN_WELL:
            continue
        if not _within_reach(rest, runs.configurations.take(outer)):
            continue
        fit = fit_ernest(rest, terms, items, relative=True)
        if not _missed(runs, rest, fit):
            continue
        ratio = runs.typical[outer] / fit.predict(runs.configurations.take(outer))
        if float(ratio.min()) >= JUMP and not _predicted_piecewise(runs, outer, terms, items):
            return Edge(
                float(loads[inner].max()), float(loads[outer].min()), float(np.median(ratio))
            )
    return None


def _within_reach(inner: Runs, outer: Points) -> bool:
    """Return whether the terms that are fitted to the inner runs can predict the outer machine
    counts."""
    counts = np.unique(inner.points.machines)
    low, high = float(outer.machines.min()), float(outer.machines.max())
    return bool(
        len(counts) >= COUNTS_LEAST
        and low * REACH >= counts[0] * (1.0 - 1e-9)
        and high <= REACH * counts[-1] * (1.0 + 1e-9)
    )


def _missed(runs: Runs, inner: Runs, fit: ErnestFit) -> bool:
    """Return whether the same terms, fitted to all runs, miss some as they miss none of the inner
    ones."""
    every = fit_ernest(runs, fit.terms, fit.items, relative=True)
    worst, usual = (
        float(np.max(np.abs(np.log(each.predict(of.configurations) / of.typical))))
        for each, of in ((every, runs), (fit, inner))
    )
    return worst >= 0.5 * float(np.log(JUMP)) and worst > WORSE * usual


def _predicted_piecewise(
    runs: Runs, outer: Integers, terms: Sequence[Term], items: float | None
) -> bool:
    """Return whether a piecewise fit predicts each of the outer configurations when it is left out:
    then the cliff is at a lower load, with enough runs beyond it."""
    for configuration in outer:
        fit = fit_piecewise(runs.without([configuration]), terms, items)
        if fit is None:
            return False
        predicted = float(fit.predict(runs.configurations.take([configuration]))[0])
        if abs(float(np.log(predicted / runs.typical[configuration]))) > 2.0 * KNOWN_WELL:
            return False
    return True


def _misfit(runs: Runs, terms: Sequence[Term], items: float | None) -> float:
    """Mean absolute leave-one-out error in logs."""

    def fitter(training: Runs) -> ErnestFit:
        return fit_ernest(training, terms, items, relative=True)

    predicted = held_out(runs, fitter, folds_of(runs.count, FOLDS_MOST))
    return float(np.mean(np.abs(log_errors(predicted, runs))))


def _loads(runs: Runs) -> Floats:
    return np.sort(runs.configurations.load)
