"""Least squares with a penalty of its own for each column.

With some forty columns the normal equations are small, and the columns share a unit (logs over
idle), so that they are well enough conditioned under any penalty that is chosen here.
"""

from __future__ import annotations

import numpy as np
from scipy.linalg.lapack import dposv
from scipy.optimize import nnls

from kongming.dataset import Floats


def centred_squares(X: Floats) -> float:
    """Sum of the squares of the centred ``X`` (n, p): what a ridge penalty is a share of."""
    return float(np.sum((X - X.mean(axis=0)) ** 2))


def shrunk(
    X: Floats, y: Floats, penalties: Floats, weights: Floats | None = None
) -> tuple[Floats, float]:
    """Coefficients (p,) and intercept of least squares with ``penalties`` (p,) on their squares.

    ``weights`` (n,) are those of the rows; all 1 without.
    """
    rows = np.ones(len(y)) if weights is None else weights
    total = float(np.sum(rows))
    mean, center = (rows @ X) / total, float(rows @ y) / total
    centred = X - mean
    weighted = centred * rows[:, None]
    coef = symmetric_solution(weighted.T @ centred + np.diag(penalties), weighted.T @ (y - center))
    return coef, center - float(mean @ coef)


def symmetric_solution(matrix: Floats, wanted: Floats) -> Floats:
    """(p,): the solution of ``matrix @ b = wanted`` for a positive definite ``matrix`` (p, p).

    Where it is not even that, because nothing varied, or by rounding under a tiny penalty, it is
    the solution of least length.
    """
    size = float(np.max(np.abs(np.diag(matrix)), initial=0.0))
    if size <= 0.0:
        return np.zeros(len(wanted))
    # Scaled, so that neither the square of a nanosecond nor that of a second goes astray.
    _, solution, failed = dposv(matrix / size, wanted / size)
    if failed:
        solution, *_ = np.linalg.lstsq(matrix / size, wanted / size, rcond=1e-12)
    return np.asarray(solution, dtype=np.float64)


def shrunk_nonnegative(X: Floats, y: Floats, penalties: Floats) -> Floats:
    """Coefficients (p,) >= 0 of least squares through the origin with ``penalties`` (p,)."""
    size = float(np.sqrt(np.sum(X**2) + np.sum(penalties)))
    if size <= 0.0:
        return np.zeros(X.shape[1])
    # A penalty is a row that wishes for 0.
    rows = np.vstack([X, np.diag(np.sqrt(penalties))]) / size
    coef, _ = nnls(rows, np.concatenate([y, np.zeros(X.shape[1])]) / size)
    return np.asarray(coef, dtype=np.float64)
