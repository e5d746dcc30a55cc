"""Skill of a predictor: its prediction error above the noise floor, relative to that of a trivial
predictor.

Skill is 0 for a predictor whose error equals the repeat noise, 1 for one that is no better than the
trivial predictor, and may be below 0 or above 1. It is a ratio of geometric means of medians, which
a single application can move much: ``excess`` is what models are judged by.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from kongming.evaluate.cases import LEAST_PCT, Floats
from kongming.evaluate.excess import INTERVAL, RESAMPLES


def skill(
    figures: Floats, trivial: Floats, floors: Floats, *, seed: int
) -> tuple[float, tuple[float, float]]:
    """(geomean error - floor) / (geomean trivial error - floor), with a 95 % interval.

    All three are (apps,) in per cent; applications without all of them (NaN) are left out. The
    interval is the bootstrap's percentiles over applications, the same resamples for every model of
    one seed. NaN without applications, or if the trivial predictor is at the noise; for the
    interval also below two of them.
    """
    known = np.isfinite(figures) & np.isfinite(trivial) & np.isfinite(floors)
    logs = _logs((figures[known], trivial[known], floors[known]))
    return _ratio(logs, seed)


def ratio(figures: Floats, reference: Floats, *, seed: int) -> tuple[float, tuple[float, float]]:
    """Geomean of ``figures`` over that of ``reference``, with an interval as ``skill``'s."""
    known = np.isfinite(figures) & np.isfinite(reference)
    return _ratio(_logs((figures[known], reference[known])), seed)


def _logs(parts: Sequence[Floats]) -> Floats:
    return np.log(np.maximum(np.stack(parts), LEAST_PCT))


def _ratio(logs: Floats, seed: int) -> tuple[float, tuple[float, float]]:
    """``logs`` is (2 or 3, apps): error, reference and, if it is to be taken off both, floor."""
    apps = logs.shape[1]
    nan = float("nan")
    if not apps:
        return nan, (nan, nan)
    value = float(_quotient(np.exp(np.mean(logs, axis=1))))
    value = value if math.isfinite(value) else nan
    if apps < 2:
        return value, (nan, nan)
    drawn = np.random.default_rng(seed).integers(0, apps, (RESAMPLES, apps))
    quotients = _quotient(np.exp(np.mean(logs[:, drawn], axis=2)))
    tail = (1.0 - INTERVAL) / 2.0
    low, high = np.quantile(quotients, [tail, 1.0 - tail], method="inverted_cdf")
    return value, (float(low), float(high))


def _quotient(means: Floats) -> Floats:
    """Infinite where the reference is at the noise: nothing follows from it."""
    floor = means[2] if len(means) > 2 else 0.0
    above = means[1] - floor
    with np.errstate(divide="ignore", invalid="ignore"):
        quotients = (means[0] - floor) / above
    return np.asarray(np.where(above > 0.0, quotients, np.inf), dtype=np.float64)


def resampled_mean(per_app: Floats, *, seed: int) -> tuple[float, tuple[float, float]]:
    """Mean over applications with an interval as ``skill``'s; those without a figure are left
    out."""
    known = per_app[np.isfinite(per_app)]
    nan = float("nan")
    if len(known) < 2:
        return (float(known[0]) if len(known) else nan), (nan, nan)
    drawn = np.random.default_rng(seed).integers(0, len(known), (RESAMPLES, len(known)))
    tail = (1.0 - INTERVAL) / 2.0
    low, high = np.quantile(np.mean(known[drawn], axis=1), [tail, 1.0 - tail])
    return float(np.mean(known)), (float(low), float(high))
