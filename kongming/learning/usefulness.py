"""Usefulness of a model, whether it says more than a trivial answer: judged once, by its
validation, and kept with it. Pure.

A trivial answer is the mean of the training runs, whatever the environment, or 1: that nothing
slows the program.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from kongming.arrays import Floats

if TYPE_CHECKING:
    from kongming.learning.validation import Validation

MEAN, NO_SLOWDOWN = "MEAN", "1"

_IN_WORDS = {MEAN: "the mean of its training runs", NO_SLOWDOWN: "saying that nothing slows it"}


def better(residuals: Floats, others: Floats, weights: Floats) -> bool:
    """Return whether the absolute ``residuals`` (n,) are clearly less than ``others`` (n,): by more
    than twice the standard error of the mean difference. ``weights`` (n,) are of the residuals: 1
    for each run, shared by those of a run that was left out more than once."""
    gains = np.abs(others) - np.abs(residuals)
    runs = float(np.sum(weights))
    if runs < 1.5:
        return False
    gain = float(np.average(gains, weights=weights))
    error = float(np.sqrt(np.average((gains - gain) ** 2, weights=weights) / (runs - 1.0)))
    return gain > 2.0 * error


def not_better_than(own: Validation, mean: Validation) -> list[str]:
    """Return the trivial answers (``MEAN``, ``NO_SLOWDOWN``) that a model is not clearly better
    than on left-out runs. ``mean`` is the validation of MEAN over the same
    runs."""
    rivals = {MEAN: mean.residuals, NO_SLOWDOWN: own.measured}
    return [
        name
        for name, residuals in rivals.items()
        if not better(own.residuals, residuals, own.weights)
    ]


def remark(app: str, model: str, trivial: Sequence[str] | None) -> str | None:
    """Return a sentence where ``model`` is not clearly better than the ``trivial`` answers; None
    where there are none, and where that was not judged."""
    if not trivial:
        return None
    rivals = " or than ".join(_IN_WORDS[name] for name in trivial)
    return (
        f"{model} of {app} is not clearly better than {rivals}, on loads that were left out "
        "of training; a profile from a quieter time, with more --repeats or at another "
        "--placement may show more."
    )
