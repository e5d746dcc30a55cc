"""Choice of a penalty by leaving out groups and stripes of runs.

Groups alone are not enough. The effect of one resource cannot be learned from another: when its
group is left out, any penalty misses it, and the largest would seem to be the best.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np

from kongming.arrays import Floats

PENALTIES = (1e-4, 1e-3, 3e-3, 1e-2, 3e-2, 1e-1, 3e-1, 1.0)
"""Candidates, as shares of the summed squares of the features; the last shrinks hardest."""

STRIPES = 5
"""Number of stripes: every fifth run is left out together, in addition to the groups."""

Folds = Sequence[Sequence[int]]
"""Row numbers to leave out together, fold by fold."""


Path = Callable[[Floats, Floats, Sequence[float]], Iterable[tuple[Floats, float]]]
"""``path(X, y, penalties)`` yields the coefficients (p,) and the intercept of each penalty in turn,
so that work that all penalties need is done once."""


def choose_penalty(X: Floats, y: Floats, folds: Folds, path: Path) -> float:
    """Choose the candidate with the least mean absolute error over the rows left out.

    Of candidates within one part in a hundred of the best, the largest is taken. With nothing to
    leave out, the largest of all.
    """
    n = len(y)
    errors = np.zeros(len(PENALTIES))
    scored = 0
    stripes = [range(start, n, STRIPES) for start in range(STRIPES)] if len(folds) else []
    for fold in (*folds, *stripes):
        test = np.zeros(n, dtype=bool)
        test[list(fold)] = True
        if test.all() or not test.any():
            continue
        scored += int(test.sum())
        rows, measured = X[test], y[test]
        for k, (coef, intercept) in enumerate(path(X[~test], y[~test], PENALTIES)):
            errors[k] += float(np.abs(rows @ coef + intercept - measured).sum())
    if not scored:
        return PENALTIES[-1]
    good = np.flatnonzero(errors <= 1.01 * errors.min())
    return PENALTIES[int(good[-1])]
