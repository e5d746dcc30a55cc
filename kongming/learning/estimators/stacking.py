"""STACK: a weighted mean of the other models' log slowdowns.

The mean of members with different errors has a smaller error (stacked regression, Breiman 1996:
weights of 0 or more, learned from predictions of left-out runs). With few runs the weights
themselves are noisy, so they are shrunk towards equal ones.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import nnls

from kongming.arrays import Floats
from kongming.learning.registry import STACK
from kongming.learning.validation import Fold, Validation

__all__ = ["Stack", "nested", "stack_weights", "stacked", "worse"]

PULL = 1.0
"""How strongly the weights are shrunk to equal ones, in mean squared deviations of the members."""

LEAST_SCORED = 10
"""Minimum number of runs: weights learned from fewer would be noise."""

LEAST_WEIGHT = 0.02
"""Minimum weight: a member below it is left out, since it would cost time and have no effect."""


def stack_weights(predictions: Floats, y: Floats, *, pull: float = PULL) -> Floats:
    """Return (k,) weights of 0 or more that sum to 1.

    ``predictions`` (n, k) are the members' log slowdowns of runs that they were not trained on,
    ``y`` (n,) the measured ones. Minimises the squared error of the weighted mean, with a
    penalty on how far the weights are from equal.
    """
    n, k = predictions.shape
    if n == 0 or k == 1:
        return np.full(k, 1.0 / k)
    equal = np.full(k, 1.0 / k)
    errors = predictions - y[:, None]
    # As the weights sum to 1, the stack's error is the weighted sum of the members' errors.
    scale = float(np.sum((errors - errors.mean(axis=1, keepdims=True)) ** 2)) / k
    if scale <= 1e-12 * float(np.sum(errors**2)):
        return equal
    root = np.sqrt(pull * scale)
    # A row far heavier than the others makes the weights sum to 1 to within rounding.
    heavy = 1e4 * np.sqrt(float(np.sum(errors**2)) + scale)
    rows = np.vstack([errors, root * np.eye(k), heavy * np.ones((1, k))])
    target = np.concatenate([np.zeros(n), root * equal, [heavy]])
    weights, _ = nnls(rows, target)
    weights[weights < LEAST_WEIGHT * weights.sum()] = 0.0
    total = float(weights.sum())
    return np.asarray(weights / total, dtype=np.float64) if total > 0.0 else equal


def nested(
    predictions: Floats, y: Floats, folds: Sequence[NDArray[np.intp]], *, pull: float = PULL
) -> Floats:
    """Return (n,): the stack's prediction of each row, with weights learned without the row's fold.

    ``folds`` are the rows that were left out together; a row in several of them gets the mean of
    their predictions, a row in none gets NaN.
    """
    sums, counts = np.zeros(len(y)), np.zeros(len(y))
    every = np.arange(len(y))
    for test in folds:
        weights = stack_weights(
            predictions[np.setdiff1d(every, test)], y[np.setdiff1d(every, test)], pull=pull
        )
        sums[test] += predictions[test] @ weights
        counts[test] += 1.0
    return np.where(counts > 0.0, sums / np.maximum(counts, 1.0), np.nan)


@dataclass(frozen=True, eq=False, slots=True)
class Stack:
    """Weights of 0 or more by member, which sum to 1, and the errors of the nested stack."""

    weights: Mapping[str, float]
    validation: Validation


def stacked(members: Sequence[Validation], y: Floats, folds: Sequence[Fold]) -> Stack | None:
    """Return the validated stack of these models; None for fewer than two members or folds, or too
    few left-out runs.

    ``members`` are validations over the same ``folds``, ``y`` (n,) the measured log slowdowns.
    """
    if len(members) < 2 or len(folds) < 2:
        return None
    n = len(y)
    predictions = np.stack([member.by_row(n) for member in members], axis=1)
    scored = np.flatnonzero(np.isfinite(predictions).all(axis=1))
    if len(scored) < LEAST_SCORED:
        return None
    place = np.full(n, -1)
    place[scored] = np.arange(len(scored))
    tests = [place[fold.test][place[fold.test] >= 0] for fold in folds]
    predicted = nested(predictions[scored], y[scored], tests)
    weights = stack_weights(predictions[scored], y[scored])
    number = np.zeros(n, dtype=np.intp)
    for k, fold in enumerate(folds):
        number[fold.test] = k
    validation = Validation(
        STACK,
        scored,
        y[scored] - predicted,
        np.ones(len(scored)),
        number[scored],
        predicted,
    )
    shares = {m.model: float(w) for m, w in zip(members, weights, strict=True) if w > 0.0}
    return Stack(shares, validation)


def worse(one: Validation, other: Validation, noise: float) -> bool:
    """Return whether ``one`` has a larger error than ``other``, beyond chance and the repeat noise.

    ``other`` is often the least of many errors, and so too low for new runs: the mean difference of
    the absolute errors, run by run, counts only beyond twice its standard error.
    """
    if not len(one.residuals) or not len(other.residuals):
        return len(one.residuals) == 0
    n = int(max(one.rows.max(), other.rows.max())) + 1
    errors = []
    for validation in (one, other):
        counts = np.bincount(validation.rows, minlength=n)
        sums = np.bincount(validation.rows, weights=np.abs(validation.residuals), minlength=n)
        errors.append(np.where(counts > 0, sums / np.maximum(counts, 1), np.nan))
    difference = errors[0] - errors[1]
    difference = difference[np.isfinite(difference)]
    if len(difference) < 2:
        return False
    root = np.sqrt(len(difference))
    allowed = max(noise, 2.0 * float(np.std(difference, ddof=1))) / root
    return bool(float(np.mean(difference)) > allowed)
