"""Intervals from the residuals of validation, in logs, so that they are relative to the runtime.

A run whose resource family was left out resembles a new environment, so the quantiles of such
residuals bound a prediction: cross-conformal, in the manner of CV+ (Barber et al. 2021), but around
the prediction of the model that was trained on all runs, and scaled by the distance of the
environment from idle. Next to a quiet neighbour a program repeats to within the noise; one interval
for all environments would be too wide there and too narrow under load.

Runs under an inducer and runs next to a program are not exchangeable, so no such interval has a
guaranteed coverage on pairs. The coverage there is learned from co-runs of other applications:
``widening`` is the factor by which intervals have to be widened (or, with enough applications, can
be narrowed) to reach their nominal coverage.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

from kongming.arrays import Floats
from kongming.records.errors import InputError
from kongming.records.prediction import Interval

LEAST_GROUPS = 10
"""With fewer groups (resource families left out in turn, or other applications that a widening was
learned from) an interval is marked as not calibrated. The two kinds are not added up: families
predict little about programs, and two programs little about a third."""

SEVERITY_SHARE = 0.3
"""How much of an environment's severity, in logs, counts as one log unit of a prediction's
uncertainty, beside the repeat noise. Intervals over simulated pairs were nearly the narrowest,
at equal coverage, from 0.1 to 0.5; without the severity, or with all of it, they were wider by
15 to 40 %."""

LEAST_APPLICATIONS = 3
"""With fewer other applications the interval must contain the worst of their co-runs."""

_IQR_TO_DEVIATION = 1.0 / NormalDist().inv_cdf(0.75)
"""Standard deviation of a normal distribution whose half inter-quartile range is 1."""

_MOST = math.log(1e6)
"""Maximum distance of an end of an interval from its median, in logs."""

_STEPS = 200
"""Number of candidates between the level and 1 for the quantile of a widening."""


def severity(times: Floats, idle: Floats, spread: Floats) -> Floats:
    """Return (n,): the root mean square of the columns' distance from idle, in logs.

    ``times`` is (n, p) and ``idle`` (p,), in seconds per operation; ``spread`` (p,) is the spread
    of a column on the idle node, in logs, and is subtracted.
    """
    return severity_of(np.log(times / idle), spread)


def severity_of(moved: Floats, spread: Floats) -> Floats:
    """Return the ``severity`` of log readings over idle, ``moved`` (n, p)."""
    beyond = np.maximum(np.abs(moved) - spread, 0.0)
    squares = np.einsum("ij,ij->i", beyond, beyond)
    return np.asarray(np.sqrt(squares / beyond.shape[1]), dtype=np.float64)


@dataclass(frozen=True, slots=True)
class Tails:
    """The basis of intervals of one level: the quantiles of the scaled residuals on both sides,
    whether there are enough residuals, and the least half that the noise allows."""

    lower: float
    upper: float
    enough: bool
    least: float


def tails(residuals: Floats, severities: Floats, *, noise: float, level: float) -> Tails:
    """Return the tails of a validation's residuals and severities, each (n,), in logs.

    Raises:
        InputError: ``level`` is not between 0 and 1.
    """
    _check_level(level)
    tail = (1.0 - level) / 2.0
    scores = np.sort(residuals / _scale(severities, noise))
    upper, enough = _tail(scores, tail)
    lower, _ = _tail(-scores[::-1], tail)
    least = NormalDist().inv_cdf(1.0 - tail) * noise * _IQR_TO_DEVIATION
    return Tails(lower, upper, enough, least)


def interval(
    log_slowdown: float,
    severity: float,
    *,
    residuals: Floats,
    severities: Floats,
    noise: float,
    lowest: float,
    groups: int,
    level: float = 0.9,
    widening: float = 1.0,
    widening_groups: int = 0,
    known: Tails | None = None,
    limit: float = math.inf,
    at_least: bool = False,
) -> Interval:
    """Return the interval of the slowdown around a predicted log slowdown.

    ``residuals`` (n,) of the validation are log measured less log predicted, ``severities`` (n,)
    are those of their environments, and ``groups`` is the number of groups that were left out in
    turn. Before it is widened it is never narrower than the repeat ``noise`` (half an
    inter-quartile range, in logs) allows a single run to be, and reaches below ``lowest``, the
    least credible log slowdown, by at most that noise. ``widening`` multiplies both of its halves,
    in logs, and was learned from the co-runs of ``widening_groups`` other applications. ``known``,
    the ``tails`` of the same residuals, severities, noise and level, saves time in repeated calls.
    ``limit`` is the log slowdown beyond which the machine cannot slow the program: the upper end
    goes beyond it by no more than the noise of a single run. ``at_least`` is passed on.

    Raises:
        InputError: ``level`` is not between 0 and 1, or ``widening`` not above 0.
    """
    if not (math.isfinite(widening) and widening > 0.0):
        raise InputError(
            "is not a factor.", field="widening", found=widening, allowed="a finite number above 0"
        )
    if known is None:
        known = tails(residuals, severities, noise=noise, level=level)
    scale = float(_scale(severity, noise))
    down = max(min(known.lower * scale, log_slowdown - lowest), known.least)
    up = max(known.upper * scale, known.least)
    farthest = max(limit - log_slowdown, 0.0) + known.least
    return Interval(
        median=math.exp(log_slowdown),
        lower=math.exp(log_slowdown - min(widening * down, _MOST)),
        upper=math.exp(log_slowdown + min(widening * up, _MOST, farthest)),
        level=level,
        calibrated=known.enough and max(groups, widening_groups) >= groups_needed(level),
        at_least=at_least,
    )


def groups_needed(level: float) -> int:
    """Return the minimum number of groups of a calibrated interval of that level: ten, or as many
    as a quantile of that level needs to be one of their values."""
    return max(LEAST_GROUPS, math.ceil(level / (1.0 - level) - 1e-9))


def score(said: Interval, slowdown: float) -> float:
    """Return the factor by which an interval must be widened to just contain a measured slowdown:
    |log measured - log predicted| over the half on that side, in logs."""
    missed = math.log(slowdown / said.median)
    end = said.upper if missed >= 0.0 else said.lower
    return abs(missed) / abs(math.log(end / said.median))


@dataclass(frozen=True, slots=True)
class Widening:
    """A factor for the halves of intervals, in logs, learned from ``pairs`` co-runs of ``groups``
    applications; 1 without any."""

    factor: float = 1.0
    groups: int = 0
    pairs: int = 0

    def notes(self) -> tuple[str, ...]:
        """Return a sentence on how the interval was widened; none without co-runs."""
        if not self.pairs:
            return ()
        runs = f"{self.pairs} co-run{'' if self.pairs == 1 else 's'}"
        apps = f"{self.groups} other application{'' if self.groups == 1 else 's'}"
        if abs(self.factor - 1.0) < 0.005:
            return (f"The interval needed no widening, by {runs} of {apps}.",)
        how = "widened" if self.factor > 1.0 else "narrowed"
        return (f"The interval is {how} by {self.factor:.2f}, learned from {runs} of {apps}.",)


UNWIDENED = Widening()
"""The widening of an interval without co-runs of other applications."""


def widening(scores: Mapping[str, Sequence[float]], level: float = 0.9) -> Widening:
    """Return the factor that intervals of ``level`` need, from the scores of other applications.

    ``scores`` are by application, those of its co-runs (``score`` of the unwidened interval).
    Co-runs of one application share its model, so each application has the same weight. The factor
    is the quantile of the pooled scores that, learned without an application, covers ``level`` of
    that application's scores, on average over the applications (leave one application out). Below
    ``LEAST_APPLICATIONS`` it is the largest score. Below ``groups_needed`` it never narrows an
    interval.

    Raises:
        InputError: ``level`` is not between 0 and 1, or a score is negative or not a number.
    """
    _check_level(level)
    known = [np.sort(np.asarray(scores[app], dtype=np.float64)) for app in sorted(scores)]
    known = [values for values in known if len(values)]
    for values in known:
        if not (np.isfinite(values).all() and values[0] >= 0.0):
            raise InputError(
                "contains an invalid score.", field="scores", allowed="finite numbers, 0 or more"
            )
    if not known:
        return UNWIDENED
    pairs = sum(len(values) for values in known)
    if len(known) < LEAST_APPLICATIONS:
        factor = max(float(values[-1]) for values in known)
    else:
        factor = _clustered(known, level)
    if len(known) < groups_needed(level):
        factor = max(factor, 1.0)
    # An interval of width 0 is never valid, even if all scores are 0.
    return Widening(max(factor, 1e-3), len(known), pairs)


def _clustered(known: Sequence[Floats], level: float) -> float:
    """Return the least pooled quantile whose coverage of left-out applications reaches the
    level.
    """
    everything = _Pool(known)
    others = [_Pool([*known[:i], *known[i + 1 :]]) for i in range(len(known))]
    # The same quantiles for every level, so that a higher level never gets a smaller factor.
    shares = np.linspace(0.0, 1.0, _STEPS + 1)
    for share in shares[shares >= level - 1e-9]:
        held = [
            np.mean(values <= pool.quantile(share))
            for values, pool in zip(known, others, strict=True)
        ]
        if np.mean(held) >= level:
            return everything.quantile(share)
    return everything.quantile(1.0)


class _Pool:
    """Return the scores of several applications; each application has the same total weight."""

    def __init__(self, known: Sequence[Floats]) -> None:
        values = np.concatenate(known)
        weights = np.concatenate([np.full(len(one), 1.0 / len(one)) for one in known])
        order = np.argsort(values, kind="stable")
        self._values = values[order]
        self._shares = np.cumsum(weights[order]) / len(known)

    def quantile(self, share: float) -> float:
        place = int(np.searchsorted(self._shares, share - 1e-9))
        return float(self._values[min(place, len(self._values) - 1)])


def _scale(severity: Floats | float, noise: float) -> Floats:
    return np.asarray(noise + SEVERITY_SHARE * np.asarray(severity), dtype=np.float64)


def _tail(scores: Floats, tail: float) -> tuple[float, bool]:
    """Return the finite-sample upper quantile of sorted scores, and whether there are enough
    scores.
    """
    n = len(scores)
    if n == 0:
        return 0.0, False
    k = math.ceil((n + 1) * (1.0 - tail))
    return float(scores[min(k, n) - 1]), k <= n


def _check_level(level: float) -> None:
    if not 0.0 < level < 1.0:
        raise InputError("is out of range.", field="level", found=level, allowed="above 0, below 1")
