"""Repeat noise of a program: what its own repeats show, drawn towards those of other programs.

Six solo runs tell a standard deviation to within a third, two tell next to nothing. The variances
of several programs are taken as draws from a scaled inverse chi-squared distribution, whose two
parameters are estimated from the pool; a program's variance is then the weighted mean of its own
and the pool's, by degrees of freedom (Smyth: Linear models and empirical Bayes methods,
Statistical Applications in Genetics and Molecular Biology 3, 2004, section 6).
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from kongming.arrays import Floats

LEAST_PROGRAMS = 3
"""With fewer other programs their differences show nothing: the default pool is taken."""

MOST_DEGREES = 50.0
"""A pool counts as this many degrees of freedom at the most, even if its programs are alike."""


@dataclass(frozen=True, slots=True)
class Variance:
    """A variance of log costs with its degrees of freedom: of a program's repeats, or of a pool."""

    value: float
    degrees: float


DEFAULT_POOL = Variance(0.03**2, 2.0)
"""The pool of a program without others: 3 %, and programs differ as widely as those that were
recorded (`pool` of three recordings: 2 to 4 %, 1 to 3 degrees of freedom)."""

LEAST = 0.005**2
"""Minimum variance: no program repeats to within 0.5 %."""

_SERIES = 8.0
"""From here on the asymptotic series are exact to seven digits."""


def repeat_variance(levels: Sequence[str], logs: Floats) -> Variance:
    """Return the pooled variance of the log costs (n,) of runs at the same level about their
    mean; of no degree of freedom without repeats."""
    squares, degrees = 0.0, 0
    keys = np.asarray(levels)
    for level in sorted(set(levels)):
        values = logs[keys == level]
        squares += float(np.sum((values - values.mean()) ** 2))
        degrees += len(values) - 1
    return Variance(squares / degrees if degrees else 0.0, float(degrees))


def pool(others: Iterable[Variance]) -> Variance:
    """Return what other programs' variances say of one that was not seen."""
    known = [variance for variance in others if variance.degrees > 0.0]
    if len(known) < LEAST_PROGRAMS:
        return DEFAULT_POOL
    logs = [
        math.log(max(variance.value, LEAST))
        - _digamma(variance.degrees / 2.0)
        + math.log(variance.degrees / 2.0)
        for variance in known
    ]
    sampling = statistics.fmean(_trigamma(variance.degrees / 2.0) for variance in known)
    half = _inverse_trigamma(statistics.variance(logs) - sampling)
    centre = statistics.fmean(logs) + _digamma(half) - math.log(half)
    return Variance(math.exp(centre), 2.0 * half)


def shrunk(own: Variance, others: Variance) -> float:
    """Return the standard deviation of one run's log cost: a program's ``own`` variance drawn
    towards the pool's."""
    degrees = own.degrees + others.degrees
    value = (own.degrees * own.value + others.degrees * others.value) / degrees
    return math.sqrt(max(value, LEAST))


def _inverse_trigamma(value: float) -> float:
    """Return the argument, up to half of ``MOST_DEGREES``, at which the trigamma function has that
    value; it falls with its argument."""
    low, high = 1e-3, MOST_DEGREES / 2.0
    if value <= _trigamma(high):
        return high
    for _ in range(60):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if _trigamma(middle) > value else (low, middle)
    return high


def _digamma(x: float) -> float:
    """Return the derivative of log gamma: recurrence, then its asymptotic series (Abramowitz and
    Stegun, 6.3.5 and 6.3.18)."""
    below = 0.0
    while x < _SERIES:
        below += 1.0 / x
        x += 1.0
    return math.log(x) - 1.0 / (2.0 * x) - 1.0 / (12.0 * x**2) + 1.0 / (120.0 * x**4) - below


def _trigamma(x: float) -> float:
    """Return the derivative of ``_digamma`` (Abramowitz and Stegun, 6.4.6 and 6.4.12)."""
    below = 0.0
    while x < _SERIES:
        below += 1.0 / x**2
        x += 1.0
    return 1.0 / x + 1.0 / (2.0 * x**2) + 1.0 / (6.0 * x**3) - 1.0 / (30.0 * x**5) + below
