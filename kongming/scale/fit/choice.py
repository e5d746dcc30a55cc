"""The kinds of single models, and the choice of terms by cross-validation over configurations: the
smallest set whose error is within chance of the best."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Literal

import numpy as np

from kongming.arrays import Floats
from kongming.quantities import per_cent
from kongming.records.errors import UnknownNameError
from kongming.scale.fit.cliffs import fit_piecewise
from kongming.scale.fit.ernest import ErnestFit, fit_ernest
from kongming.scale.fit.nearest import fit_nearest
from kongming.scale.fit.residuals import Shape, fit_residuals
from kongming.scale.fit.terms import Term, Terms
from kongming.scale.fit.validation import Fit, Fitter, folds_of, held_out, log_errors
from kongming.scale.points import Runs

Kind = Literal[
    "ernest", "ernest-relative", "ernest-piecewise", "ernest-residuals", "repeat-nearest"
]
"""From the simplest to the one with the fewest assumptions."""

GAIN = 0.1
"""Minimum relative reduction of the error that justifies a richer model (it must also exceed
chance)."""

NOTHING = 1e-6
"""Differences of errors (in logs) below this count as none."""

MOST_CANDIDATES = 5
"""Up to this many candidate terms, all sets are tried; above, sets of up to two."""


@dataclass(frozen=True, slots=True)
class ChosenTerms:
    """The terms, the reason, and the mean absolute log error of each set that was tried."""

    terms: tuple[Term, ...]
    reason: str
    errors: dict[str, float]


def fitter_of(
    kind: str, terms: Sequence[Term], items: float | None, *, shape: Shape | None = None
) -> Fitter:
    """Return the function that fits a kind. Raises UnknownNameError."""

    def relative(runs: Runs) -> ErnestFit:
        return fit_ernest(runs, terms, items, relative=True)

    def piecewise(runs: Runs) -> Fit:
        return fit_piecewise(runs, terms, items) or relative(runs)

    fitters: dict[str, Fitter] = {
        "ernest": lambda runs: fit_ernest(runs, terms, items),
        "ernest-relative": relative,
        "ernest-piecewise": piecewise,
        "ernest-residuals": lambda runs: fit_residuals(runs, relative(runs), shape),
        "repeat-nearest": lambda runs: fit_nearest(runs, relative(runs)),
    }
    if kind not in fitters:
        raise UnknownNameError("kind of scale model", kind, fitters)
    return fitters[kind]


def choose_terms(runs: Runs, requested: Terms, items: float | None) -> ChosenTerms:
    """Select the fewest terms whose error is within chance of the best set's.

    Each set is fitted in relative error with each configuration left out in turn.
    """
    if not requested.auto:
        return ChosenTerms(requested.terms, "as requested", {})
    folds = folds_of(runs.count, 40)
    count = len(requested.candidates)
    largest = count if count <= MOST_CANDIDATES else 2
    tried: list[tuple[tuple[Term, ...], Floats]] = []
    for size in range(largest + 1):
        for added in combinations(requested.candidates, size):
            fitter = fitter_of("ernest-relative", (*requested.terms, *added), items)
            tried.append((added, np.abs(log_errors(held_out(runs, fitter, folds), runs))))
    best = min(tried, key=lambda entry: (round(float(entry[1].mean()), 9), len(entry[0])))
    chosen, chosen_errors = next(entry for entry in tried if not _better(best[1], entry[1]))
    default_error = float(tried[0][1].mean())
    chosen_error = float(chosen_errors.mean())
    names = " and ".join(term.key for term in chosen)
    if chosen:
        reason = (
            f"with {names} the leave-one-out error falls from {_percent(default_error)} to "
            f"{_percent(chosen_error)}"
        )
    else:
        reason = (
            f"none of {', '.join(term.key for term in requested.candidates)} lowers the "
            f"leave-one-out error of {_percent(default_error)} by more than chance"
        )
    errors = {
        "default" if not added else "+".join(term.key for term in added): float(error.mean())
        for added, error in tried
    }
    return ChosenTerms((*requested.terms, *chosen), reason, errors)


def _better(errors: Floats, others: Floats) -> bool:
    """Return whether ``errors`` are lower by ``GAIN`` and by more than one standard error."""
    gain = others - errors
    mean = float(gain.mean())
    if mean <= NOTHING or mean < GAIN * float(others.mean()):
        return False
    return mean > float(np.std(gain, ddof=1)) / np.sqrt(len(gain)) if len(gain) > 1 else False


def _percent(error: float) -> str:
    return per_cent(100.0 * error, ".2g")
