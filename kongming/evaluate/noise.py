"""Repeat noise: the variance of what was measured, and what the truth itself would err by.

The variance of a case's log mean is s2 / R of its own R repeats. A single repeat takes the s2 that
is pooled over the other cases. To this is added what the error of the solo runs contributes beyond
what the repeats show: repeats of a pair that are divided by the same solo run err together
(``PairMeasurement.solo_variance``).

A perfect predictor errs by the noise alone. Half of the repeats against the other half, scaled, is
a draw of that error with nothing assumed but independent repeats; figures of the truth are computed
from such draws in the way in which a predictor's are computed from its errors, so that medians
are of medians. (A mean over all divisions, as before, lies 9 to 19 % above the median of one.)
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from kongming.evaluate.cases import Floats, geometric
from kongming.learning.repeat_noise import pool, repeat_variance, shrunk

DRAWS = 200
"""Draws of a perfect predictor's errors."""

_SEED = 1
"""Of the draws: the same for every evaluation, so that figures of the truth can be compared."""

Repeats = Sequence[Sequence[float]]
"""Costs of each case."""


def repeat_variances(repeats: Repeats) -> Floats:
    """(n,): variance s2 of one repeat's log by case; pooled where a case has one repeat, and NaN
    if none has two."""
    logs = [np.log(values) for values in repeats]
    squares = sum(float(np.sum((own - np.mean(own)) ** 2)) for own in logs if len(own) > 1)
    freedom = sum(len(own) - 1 for own in logs if len(own) > 1)
    pooled = squares / freedom if freedom else math.nan
    return np.array([float(np.var(own, ddof=1)) if len(own) > 1 else pooled for own in logs])


def mean_variances(repeats: Repeats, solo_variances: Floats) -> Floats:
    """(n,): variance of the log of each case's geometric mean, ``solo_variances`` (n,) included."""
    counts = np.array([len(values) for values in repeats], dtype=np.float64)
    return repeat_variances(repeats) / counts + solo_variances


def shrunk_variances(repeats: Repeats, app_of: NDArray[np.intp]) -> Floats:
    """(n,): variance of one repeat's log by case, that of its application: of all its repeats,
    drawn towards those of the other applications, as where intervals are calibrated. The variance
    of a case's own two or three repeats is mostly far too small, and sometimes far too large:
    whoever decides by it whether noise explains a distance is wrong more often than not."""
    cases: dict[int, list[int]] = {}
    for i, a in enumerate(app_of.tolist()):
        cases.setdefault(a, []).append(i)
    own = {
        a: repeat_variance(
            [str(i) for i in members for _ in repeats[i]],
            np.concatenate([np.log(repeats[i]) for i in members]),
        )
        for a, members in cases.items()
    }
    by_app = {
        a: shrunk(variance, pool(other for b, other in own.items() if b != a)) ** 2
        for a, variance in own.items()
    }
    return np.array([by_app[int(a)] for a in app_of], dtype=np.float64)


def errors_of_means(repeats: Repeats, solo_variances: Floats) -> Floats:
    """(DRAWS, n): absolute log errors of the truth against the cases' geometric means.

    NaN for a case with a single repeat. The order of the repeats does not matter.
    """
    drawn = np.random.default_rng(_SEED)
    errors = np.full((DRAWS, len(repeats)), np.nan)
    counts = np.array([len(values) for values in repeats])
    for n in np.unique(counts[counts > 1]):
        own, half = np.flatnonzero(counts == n), int(n) // 2
        logs = np.sort(np.log([repeats[int(i)] for i in own]), axis=1)
        shuffled = drawn.permuted(np.broadcast_to(logs, (DRAWS, *logs.shape)), axis=2)
        # The mean of n logs has the spread of one over sqrt(n); a difference of half means has
        # sqrt(1/half + 1/(n - half)) of it.
        scale = math.sqrt(half * (n - half)) / n
        halves = np.mean(shuffled[:, :, :half], axis=2) - np.mean(shuffled[:, :, half:], axis=2)
        solo = drawn.standard_normal((DRAWS, len(own))) * np.sqrt(solo_variances[own])
        errors[:, own] = np.abs(halves * scale + solo)
    return errors


def errors_of_runs(groups: Repeats) -> Floats:
    """(DRAWS, runs): absolute log errors of the truth against single runs, group after group.

    A run differs from another one of its group by sqrt(2) times that. NaN for a group of one.
    """
    drawn = np.random.default_rng(_SEED)
    columns = []
    for values in groups:
        logs = np.sort(np.log(values))
        n = len(logs)
        if n < 2:
            columns.append(np.full((DRAWS, n), np.nan))
            continue
        others = (np.arange(n) + drawn.integers(1, n, (DRAWS, n))) % n
        columns.append(np.abs(logs - logs[others]) / math.sqrt(2.0))
    return np.hstack(columns) if columns else np.empty((DRAWS, 0))


def floors(errors: Floats, app_of: NDArray[np.intp], apps: int) -> Floats:
    """(apps,) in per cent: the median error over an application's cases, as a geometric mean over
    draws, since applications are combined by one; NaN without repeats."""
    return np.array([_floor(errors[:, app_of == a]) for a in range(apps)], dtype=np.float64)


def _floor(errors: Floats) -> float:
    known = errors[:, np.isfinite(errors[0])]
    if not known.shape[1]:
        return math.nan
    return geometric(100.0 * np.median(known, axis=1))
