"""Slowdowns of each part of a job, from its slowdowns at several configurations.

A neighbour does not slow all parts of a parallel program alike: workers that walk through memory
wait for a streaming neighbour, starting them and passing small messages do not. A profile at one
configuration mixes the parts in the shares that they have there, so that its slowdown holds for
that configuration: with fewer machines, or more input, the parallel part has a larger share. In
Ernest's terms (NSDI 2016, section 3.1) the job takes, of its idle runtime, the share w_k in part k;
if a neighbour makes that part f_k times as long, the whole job is slowed by sum_k w_k f_k. Profiles
at configurations with different shares tell the f_k apart.

They are the most probable ones if the profiles err as their intervals say, and the f_k differ from
their mean by about as much as the slowdowns exceed 1. So one profile, or several that agree, say
that all parts are slowed alike, and no part is reported to be faster than both an idle node and
every profile. What the parts leave unexplained (a part that is slowed more where its data exceed
the cache, or the noise of a profile) is carried over to the question by its nearness to each
profile. Pure.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from scipy.optimize import nnls
from scipy.special import ndtri

from kongming.arrays import Floats
from kongming.records.prediction import Interval

_LEAST_ERROR = 0.005
"""Minimum standard deviation, in logs, of what a profile says."""

_WIDEST = 8.0


def part_slowdowns(shares: Floats, slowdowns: Sequence[Interval], common: float) -> Floats:
    """Return (k,) slowdowns of the parts.

    ``shares`` (n, k) are those of the parts in the idle runtime at each of the n profiled
    configurations, ``slowdowns`` (n) those of the whole job there. ``common`` is the share of
    their errors that all profiles have in common: it moves all parts alike.
    """
    medians = np.array([slowdown.median for slowdown in slowdowns])
    least = min(1.0, float(medians.min()))
    beyond = medians - least
    typical = float(beyond.max())
    count = shares.shape[1]
    if typical <= 0.0:
        return np.full(count, least)
    errors = medians * np.array([_deviation(slowdown) for slowdown in slowdowns])
    errors *= math.sqrt(1.0 - common)
    # Deviations from the mean of all parts.
    apart = (np.eye(count) - 1.0 / count) / typical
    A = np.vstack([shares / errors[:, None], apart])
    b = np.concatenate([beyond / errors, np.zeros(count)])
    excess, _ = nnls(A, b, maxiter=30 * max(10, count))
    return np.asarray(least + excess, dtype=np.float64)


def nearest_mean(distances: Floats, slowdowns: Floats) -> float:
    """Return the geometric mean of (n,) slowdowns, weighted by one over the square of their
    distance (n,) to the question."""
    weights = 1.0 / np.maximum(distances, 1e-6) ** 2
    return float(np.exp(np.average(np.log(slowdowns), weights=weights)))


def around(median: float, slowdowns: Sequence[Interval]) -> Interval:
    """Return an interval around ``median`` that reaches, in logs, as far on each side as the widest
    of the profiles'."""
    down = max(math.log(slowdown.median / max(slowdown.lower, 1e-300)) for slowdown in slowdowns)
    up = max(math.log(slowdown.upper / slowdown.median) for slowdown in slowdowns)
    return Interval(
        median,
        median * math.exp(-min(down, _WIDEST)),
        median * math.exp(min(up, _WIDEST)),
        slowdowns[0].level,
        all(slowdown.calibrated for slowdown in slowdowns),
        any(slowdown.at_least for slowdown in slowdowns),
    )


def _deviation(slowdown: Interval) -> float:
    """Return the standard deviation, in logs, of the median of many runs about ``median``; of a
    single run where only that is known."""
    lower, upper = slowdown.expected or (slowdown.lower, slowdown.upper)
    wide = 2.0 * float(ndtri(0.5 + slowdown.level / 2.0))
    reach = min(math.log(max(upper, 1e-300) / max(lower, 1e-300)), 2.0 * _WIDEST)
    return max(reach / wide, _LEAST_ERROR)
