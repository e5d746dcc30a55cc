"""Two intervals around a predicted slowdown, in logs, so that they are relative to the runtime.

``expected`` is where the median of many runs will fall: the error of the model. ``run`` is where
one run will fall: the model's error and the repeat noise, which are independent.

The error of a model is taken to be as large as its members disagree there (query by committee:
Seung, Opper and Sompolinsky 1992; as for deep ensembles, Lakshminarayanan et al. 2017), and as the
solo runs leave open. How many of these standard deviations an interval needs is learned from
residuals: a run whose resource family was left out resembles a new environment, so the quantiles of
such residuals bound a prediction: cross-conformal, in the manner of CV+ (Barber et al. 2021), but
around the prediction of the model that was trained on all runs.

Runs under an inducer and runs next to a program are not exchangeable, so no such interval has a
guaranteed coverage on pairs. The coverage there is learned from co-runs of other applications:
``widening`` is the factor by which intervals have to be widened (or, with enough applications, can
be narrowed) to reach their nominal coverage.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import NormalDist
from typing import Literal

import numpy as np

from kongming.arrays import Floats
from kongming.learning.repeat_noise import DEFAULT_POOL, Variance
from kongming.records.errors import InputError
from kongming.records.prediction import Interval

LEAST_FAMILIES = 10
"""With fewer resource families left out in turn they do not calibrate an interval. They are not
added up with other applications: families predict little about programs."""

LEAST_POOLED = 5
"""Other applications from which on a widening calibrates an interval, and may narrow it. Each has
co-runs with several neighbours, so the quantile is one of their values."""

SHRINKAGE = 5.0
"""Other applications at which half of a narrowing, in logs, is believed: a factor f below 1 that
was learned from G of them counts as f^(G / (G + SHRINKAGE))."""

SEVERITY_SHARE = 0.3
"""How much of an environment's severity, in logs, counts as the error of a model without members
that could disagree. Intervals over simulated pairs were nearly the narrowest, at equal coverage,
from 0.1 to 0.5."""

LEAST_APPLICATIONS = 3
"""With fewer other applications the interval must contain the worst of their co-runs."""

_MOST = math.log(1e6)
"""Maximum distance of an end of an interval from its median, in logs."""

_NO_HALF = 1e-6
"""A side of an interval, in logs, that is held at its median by a bound."""

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
    whether there are enough residuals, and the half that the noise of a single run adds."""

    lower: float
    upper: float
    enough: bool
    noise: float


def tails(residuals: Floats, errors: Floats, *, noise: float, level: float) -> Tails:
    """Return the tails of a validation's ``residuals`` (n,), log measured less log predicted.

    ``errors`` (n,) are the standard deviations of the model's error there, ``noise`` that of a
    single run, all in logs.

    Raises:
        InputError: ``level`` is not between 0 and 1.
    """
    _check_level(level)
    tail = (1.0 - level) / 2.0
    scores = np.sort(residuals / np.hypot(errors, noise))
    upper, enough = _tail(scores, tail)
    lower, _ = _tail(-scores[::-1], tail)
    normal = NormalDist().inv_cdf(1.0 - tail)
    # Too few residuals may all be small by chance.
    least = 0.0 if enough else normal
    return Tails(max(lower, least), max(upper, least), enough, normal * noise)


def interval(
    log_slowdown: float,
    error: float,
    *,
    known: Tails,
    lowest: float,
    groups: int,
    level: float = 0.9,
    widening: Widening | None = None,
    limit: float = math.inf,
    at_least: bool = False,
    loaded_runs: int | None = None,
) -> Interval:
    """Return both intervals of the slowdown around a predicted log slowdown.

    ``error`` is the standard deviation of the model's error there, in logs, ``known`` the ``tails``
    of its validation at ``level``, over ``groups`` that were left out in turn. ``expected`` reaches
    as many errors as those tails say, but not below ``lowest``, the least credible log slowdown;
    ``run`` adds the noise of a single run in quadrature, so before it is widened it is never
    narrower than repeats are. ``widening`` multiplies the halves of each in logs, as it does at
    ``level``. ``limit`` is the log slowdown beyond which the machine cannot slow the program:
    ``expected`` does not go beyond it, ``run`` by no more than the noise of a single run.
    ``at_least`` is passed on. ``loaded_runs`` is the size of the profile, None if it is not known
    (``Widening.fits``).
    """
    factors = (widening or UNWIDENED).at(level)
    down = min(known.lower * error, max(log_slowdown - lowest, 0.0))
    up = known.upper * error
    room = max(limit - log_slowdown, 0.0)
    lower = min(factors.factor * math.hypot(down, known.noise), _MOST)
    upper = min(factors.factor * math.hypot(up, known.noise), _MOST, room + known.noise)
    calibrated = calibrated_by(level, known, groups, factors, loaded_runs)
    return Interval(
        median=math.exp(log_slowdown),
        lower=math.exp(log_slowdown - lower),
        upper=math.exp(log_slowdown + upper),
        level=level,
        calibrated=bool(calibrated),
        at_least=at_least,
        expected_lower=math.exp(log_slowdown - min(factors.expected * down, lower)),
        expected_upper=math.exp(log_slowdown + min(factors.expected * up, upper, room)),
        calibrated_by=calibrated,
        calibrated_groups=factors.groups if calibrated == "applications" else groups,
    )


def calibrated_by(
    level: float, known: Tails, groups: int, widening: Widening, loaded_runs: int | None = None
) -> Literal["applications", "families", ""]:
    """Return what an interval of ``level`` is calibrated on: the co-runs of other applications, if
    their profiles are not far larger (``Widening.fits``), left-out families, or nothing."""
    if widening.groups >= applications_needed(level) and widening.fits(loaded_runs):
        return "applications"
    return "families" if known.enough and groups >= families_needed(level) else ""


def families_needed(level: float) -> int:
    """Return the minimum number of left-out families of a calibrated interval: ten, or as many
    as a quantile of that level needs to be one of their values."""
    return max(LEAST_FAMILIES, math.ceil(level / (1.0 - level) - 1e-9))


def applications_needed(level: float) -> int:
    """Return the minimum number of other applications of a calibrated interval: five at 90 %, and
    more in proportion for a higher level."""
    return max(LEAST_POOLED, math.ceil(LEAST_POOLED * level / (1.0 - level) / 9.0 - 1e-9))


def score(interval: Interval, slowdown: float) -> float:
    """Return the factor by which an interval must be widened to just contain a measured slowdown:
    |log measured - log predicted| over the half on that side, in logs. What lies above a prediction
    that says "at least" is contained."""
    missed = math.log(slowdown / interval.median)
    end = interval.upper if missed >= 0.0 else interval.lower
    value = abs(missed) / abs(math.log(end / interval.median))
    return _of_open_end(value) if interval.at_least and missed >= 0.0 else value


def expected_score(interval: Interval, mean: float, deviation: float) -> float:
    """Return the factor by which the ``expected`` interval must be widened to just contain the
    median of many runs, of which a ``mean`` log slowdown is known with a standard error: what that
    error explains, ``deviation`` at the level of the interval, is taken off first."""
    missed = mean - math.log(interval.median)
    end = interval.expected_upper if missed >= 0.0 else interval.expected_lower
    beyond = math.sqrt(max(missed**2 - deviation**2, 0.0))
    if beyond == 0.0 or end is None:
        return 0.0
    half = abs(math.log(end / interval.median))
    if half < _NO_HALF:
        # A median at its bound: no factor mends that side, so it says nothing of other intervals.
        return min(beyond / _NO_HALF, 1.0)
    value = beyond / half
    return _of_open_end(value) if interval.at_least and missed >= 0.0 else value


def _of_open_end(value: float) -> float:
    """Return a score beyond which nothing is missed: it does not widen, and as it says nothing of
    how near the other end may be, it does not narrow either."""
    return min(value, 1.0)


@dataclass(frozen=True, slots=True)
class Widening:
    """Factors for the halves of intervals, in logs, learned from ``pairs`` co-runs of ``groups``
    applications; 1 without any. ``factor`` is of the ``run`` interval, ``expected`` of the other.
    ``pool`` is what other programs' repeats say of the noise of this one, ``level`` that of the
    intervals that the factors were learned for, and ``loaded_runs`` the median of the runs under a
    load in those applications' profiles, 0 if it is not known."""

    factor: float = 1.0
    groups: int = 0
    pairs: int = 0
    expected: float = 1.0
    pool: Variance = DEFAULT_POOL
    level: float = 0.9
    loaded_runs: float = 0.0

    def __post_init__(self) -> None:
        for name in ("factor", "expected"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value > 0.0):
                raise InputError(
                    "is not a factor.",
                    field=f"widening.{name}",
                    value=value,
                    allowed="a finite number above 0",
                )

    def at(self, level: float) -> Widening:
        """Return the widening of intervals of ``level``: where that is higher, and there are too
        few applications for it (``applications_needed``), it does not narrow them."""
        if level <= self.level or min(self.factor, self.expected) >= 1.0:
            return self
        if self.groups >= applications_needed(level):
            return self
        return replace(
            self, factor=max(self.factor, 1.0), expected=max(self.expected, 1.0), level=level
        )

    def fits(self, loaded_runs: int | None) -> bool:
        """Return whether the factors say anything of a model of so many runs under a load, None if
        that is not known: half as many as of the models that they were learned from, or more. Of
        few loads all members of a consensus learn the same, so that their disagreement is a smaller
        part of its error."""
        return loaded_runs is None or 2 * loaded_runs >= self.loaded_runs

    def repeats_alone(self) -> Widening:
        """Return the widening of a model that no co-run was compared with: the ``pool`` alone."""
        return Widening(pool=self.pool)

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


def widening_factor(scores: Mapping[str, Sequence[float]], level: float = 0.9) -> float:
    """Return the factor that intervals of ``level`` need, from the scores of other applications.

    ``scores`` are by application, those of its co-runs (``score`` of the unwidened interval).
    Co-runs of one application share its model, so each application has the same weight. The factor
    is the quantile of the pooled scores that, learned without an application, covers ``level`` of
    that application's scores, on average over the applications (leave one application out). Below
    ``LEAST_APPLICATIONS`` it is the largest score. Below ``applications_needed`` it never narrows
    an interval, and from there on by a share that grows with the applications (``SHRINKAGE``): that
    an interval is too narrow has to be mended at once, that it is too wide has to be shown.

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
        return 1.0
    if len(known) < LEAST_APPLICATIONS:
        return max(1.0, *(float(values[-1]) for values in known))
    factor = _clustered(known, level)
    if factor >= 1.0:
        return factor
    if len(known) < applications_needed(level):
        return 1.0
    # An interval of width 0 is never valid, even if all scores are 0.
    return math.pow(max(factor, 1e-3), len(known) / (len(known) + SHRINKAGE))


def expected_factor(
    scores: Mapping[str, Sequence[float]],
    at_most: Mapping[str, Sequence[float]],
    level: float = 0.9,
) -> float:
    """Return the factor that ``expected`` intervals of ``level`` need (as ``widening_factor``).

    ``scores`` are of means of runs, less what the means' own error explains; ``at_most`` of the
    same means as they are. A mean that its error alone explains shows nothing of the model, so only
    what is left widens an interval, and only the whole distance narrows it: otherwise the noisiest
    means would leave the narrowest intervals.

    Raises:
        InputError: as ``widening_factor``.
    """
    factor = widening_factor(scores, level)
    if factor >= 1.0:
        return factor
    # The second may be the smaller one: a factor is chosen by the coverage of left-out programs,
    # which greater scores of the others may raise.
    return min(1.0, max(factor, widening_factor(at_most, level)))


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
        weights = np.concatenate([np.full(len(scores), 1.0 / len(scores)) for scores in known])
        order = np.argsort(values, kind="stable")
        self._values = values[order]
        self._shares = np.cumsum(weights[order]) / len(known)

    def quantile(self, share: float) -> float:
        place = int(np.searchsorted(self._shares, share - 1e-9))
        return float(self._values[min(place, len(self._values) - 1)])


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
        raise InputError("is out of range.", field="level", value=level, allowed="above 0, below 1")
