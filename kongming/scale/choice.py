"""Which terms, and which kind of model: by leaving configurations out; the simplest of what is as
good as the best."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Literal

import numpy as np

from kongming.dataset import Floats
from kongming.errors import UnknownNameError
from kongming.scale.cliffs import SIDE, fit_piecewise, is_cliff
from kongming.scale.ernest import ErnestFit, fit_ernest
from kongming.scale.nearest import fit_nearest
from kongming.scale.points import Runs
from kongming.scale.residuals import Shape, fit_residuals
from kongming.scale.terms import Term, Terms
from kongming.scale.validation import Fit, Fitter, folds_of, held_out, log_errors

__all__ = ["KINDS", "Choice", "ChosenTerms", "Kind", "choose_kind", "choose_terms", "fitter_of"]

Kind = Literal[
    "ernest", "ernest-relative", "ernest-piecewise", "ernest-residuals", "repeat-nearest"
]
KINDS: tuple[Kind, ...] = (
    "ernest",
    "ernest-relative",
    "ernest-piecewise",
    "ernest-residuals",
    "repeat-nearest",
)
"""From the simplest to what assumes least."""

LOCAL_LEAST = 16
"""Configurations from which a model that follows them is worth trying."""

GAIN = 0.1
"""A richer model has an error that is lower by this share at least, and by more than chance."""

NOTHING = 1e-6
"""Errors (in logs) that differ by less do not differ."""

FOLDS = 12
MOST_CANDIDATES = 5
"""Of so many candidate terms all sets are tried; of more, sets of up to two."""


@dataclass(frozen=True, slots=True)
class ChosenTerms:
    """The terms, why, and the mean absolute log error of each set that was tried."""

    terms: tuple[Term, ...]
    reason: str
    errors: dict[str, float]


@dataclass(frozen=True, slots=True)
class Choice:
    """The kind, why, and the mean absolute log error of each kind that was tried."""

    kind: Kind
    reason: str
    errors: dict[str, float]


def fitter_of(
    kind: str, terms: Sequence[Term], items: float | None, *, shape: Shape | None = None
) -> Fitter:
    """How a kind is fitted. Raises UnknownNameError."""

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


def choose_terms(runs: Runs, asked: Terms, items: float | None) -> ChosenTerms:
    """The fewest terms whose error is within chance of the best set's.

    Each set is fitted in relative error with each configuration left out in turn.
    """
    if not asked.auto:
        return ChosenTerms(asked.terms, "they were asked for", {})
    folds = folds_of(runs.count, 40)
    most = len(asked.candidates) if len(asked.candidates) <= MOST_CANDIDATES else 2
    tried: list[tuple[tuple[Term, ...], Floats]] = []
    for size in range(most + 1):
        for added in combinations(asked.candidates, size):
            fitter = fitter_of("ernest-relative", (*asked.terms, *added), items)
            tried.append((added, np.abs(log_errors(held_out(runs, fitter, folds), runs))))
    best = min(tried, key=lambda one: (round(float(one[1].mean()), 9), len(one[0])))
    chosen = next(one for one in tried if not _better(best[1], one[1]))
    default = float(tried[0][1].mean())
    left = float(chosen[1].mean())
    names = " and ".join(term.key for term in chosen[0])
    if chosen[0]:
        reason = (
            f"with {names} the leave-one-out error falls from {_percent(default)} to "
            f"{_percent(left)}"
        )
    else:
        reason = (
            f"none of {', '.join(term.key for term in asked.candidates)} lowers the "
            f"leave-one-out error of {_percent(default)} by more than chance"
        )
    errors = {
        "default" if not added else "+".join(term.key for term in added): float(error.mean())
        for added, error in tried
    }
    return ChosenTerms((*asked.terms, *chosen[0]), reason, errors)


def choose_kind(runs: Runs, terms: Sequence[Term], items: float | None) -> Choice:
    """Between Ernest in seconds and in relative error by which noise is likelier; another kind
    only where its error on left-out configurations is lower by more than chance."""
    folds = folds_of(runs.count, FOLDS)
    predicted = {
        kind: held_out(runs, fitter_of(kind, terms, items), folds)
        for kind in ("ernest", "ernest-relative")
    }
    absolute, relative = _likelihoods(predicted["ernest"], predicted["ernest-relative"], runs)
    base: Kind = "ernest" if absolute > relative else "ernest-relative"
    shape: Shape | None = None
    if runs.count >= 2 * SIDE + 2:
        fitter = fitter_of("ernest-piecewise", terms, items)
        predicted["ernest-piecewise"] = held_out(runs, fitter, folds)
    if runs.count >= LOCAL_LEAST:
        whole = fit_residuals(runs, fit_ernest(runs, terms, items, relative=True))
        shape = whole.shape
        fitter = fitter_of("ernest-residuals", terms, items, shape=shape)
        predicted["ernest-residuals"] = held_out(runs, fitter, folds)
    predicted["repeat-nearest"] = held_out(runs, fit_nearest, folds)
    errors = {kind: np.abs(log_errors(found, runs)) for kind, found in predicted.items()}
    chosen: Kind = base
    for kind in KINDS[2:]:
        if kind not in errors or not _better(errors[kind], errors[chosen]):
            continue
        # A small step describes any bend between the runs, and misleads beyond them.
        if kind == "ernest-piecewise" and not is_cliff(fit_piecewise(runs, terms, items), runs):
            continue
        chosen = kind
    means = {kind: float(error.mean()) for kind, error in errors.items()}
    if chosen == base:
        noise = "grows with the time" if base == "ernest-relative" else "is of one size in seconds"
        reason = f"the noise {noise}, and no richer model is better by more than chance"
    else:
        reason = (
            f"on left-out configurations its error is {_percent(means[chosen])}, that of {base} "
            f"{_percent(means[base])}"
        )
    return Choice(chosen, reason, means)


def _better(errors: Floats, others: Floats) -> bool:
    """Lower by ``GAIN`` and by more than a standard error of the difference."""
    gain = others - errors
    mean = float(gain.mean())
    if mean <= NOTHING or mean < GAIN * float(others.mean()):
        return False
    return mean > float(np.std(gain, ddof=1)) / np.sqrt(len(gain)) if len(gain) > 1 else False


def _likelihoods(absolute: Floats, relative: Floats, runs: Runs) -> tuple[float, float]:
    """Log likelihoods of the left-out times, under noise of one size and under noise that grows
    with the time; constants left out."""
    y = runs.typical
    n = len(y)
    size = max(float(np.sqrt(np.mean((y - absolute) ** 2))), 1e-9 * float(y.mean()))
    share = max(float(np.sqrt(np.mean(np.log(y / relative) ** 2))), 1e-9)
    return -n * np.log(size), -n * np.log(share) - float(np.sum(np.log(y)))


def _percent(error: float) -> str:
    return f"{100.0 * error:.2g}%"
