"""The line of a leaf: least squares, shrunk towards its parent's where samples are few."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from kongming.arrays import Floats

_PENALTIES = np.concatenate([[1e-8], np.logspace(-4.0, 4.0, 17)])

_LEAST = 1e-9
"""Least value that 1 - leverage counts as: it is 0 but for rounding where there is one sample."""


class Line(NamedTuple):
    """``intercept + x @ slopes``; ``residuals`` (n,) are those of each sample left out."""

    intercept: float
    slopes: Floats
    residuals: Floats

    def __call__(self, X: Floats) -> Floats:
        return np.asarray(self.intercept + X @ self.slopes)


def fit_line(X: Floats, y: Floats, parent: Line | None = None) -> Line:
    """Fit (n, p) samples, with the penalty on the departure from the parent's slopes (from none
    without a parent) that has the least squared leave-one-out residuals."""
    n, p = X.shape
    base = np.zeros(p) if parent is None else parent.slopes
    rest = y - X @ base
    centre, middle = X.mean(axis=0), float(rest.mean())
    scale = X.std(axis=0)
    scale = np.where(scale > 1e-12, scale, np.inf)
    U = (X - centre) / scale
    left, singular, right = np.linalg.svd(U, full_matrices=False)
    usable = singular > 1e-9 * max(singular.max(initial=0.0), 1e-300)
    left, singular, right = left[:, usable], singular[usable], right[usable]
    along = left.T @ (rest - middle)
    shrink = singular**2 / (singular**2 + _PENALTIES[:, None] * n)
    fitted = middle + (shrink * along) @ left.T
    leverage = 1.0 / n + shrink @ (left.T**2)
    # Where samples are about as many as columns, 1 - leverage is next to the least penalty: cut
    # off above it, a line through all samples would seem to have no error.
    residuals = (rest - fitted) / np.maximum(1.0 - leverage, _LEAST)
    at = int(np.argmin((residuals**2).sum(axis=1)))
    slopes = base + (right.T @ (shrink[at] * along / np.where(singular > 0, singular, 1.0))) / scale
    return Line(float(y.mean() - centre @ slopes), slopes, residuals[at])
