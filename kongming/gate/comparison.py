"""The verdict on two samples of times: slower, not slower, or too few repetitions to tell. Pure.

The level of a machine drifts: runs right after one another resemble each other more than runs of
two takes that are minutes apart, and the noise inside of a take says nothing of the difference.
Programs measured by turns (``compare_turns``) share the drift, so that it cancels. What was
measured in separate takes (``compare``) bears it as far as it shows inside of the samples: give it
one value for each of several takes that are spread over time, where there are such.

The rates are those of one judgement. Do not go on until there is a verdict, nor stop as soon as the
noise looks small: in simulations that doubles the false positives.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from kongming.gate.noise import LEAST, LEAST_RUNS, Goal, repetitions
from kongming.gate.robust import Z_99, autocorrelation_time, logs, t_quantile, t_tail, trimmed
from kongming.records.errors import InputError

Verdict = Literal["slower", "not slower", "cannot tell"]


@dataclass(frozen=True, slots=True)
class Comparison:
    """``ratio`` of the candidate's time to the baseline's with one-sided bounds, each of which is
    wrong with the goal's probability of a false positive (``lower`` of ``compare_suite`` with a
    smaller one). ``runs`` of each program were judged,
    their noise asks for ``needed`` to see the effect; ``more`` of each are to be made where the
    verdict is "cannot tell", else 0."""

    ratio: float
    lower: float
    upper: float
    verdict: Verdict
    runs: int
    needed: int
    more: int

    def to_dict(self) -> dict[str, Any]:
        return {
            "verdict": self.verdict,
            "ratio": self.ratio,
            "ratio_at_least": self.lower,
            "ratio_at_most": self.upper,
            "runs": self.runs,
            "runs_needed": self.needed,
            "more_runs": self.more,
        }

    def __str__(self) -> str:
        ratio = f"{self.ratio:.3f} times ({self.lower:.3f} to {self.upper:.3f})"
        more = f": {self.more} more runs of each" if self.more else ""
        return f"{self.verdict}{more}; {ratio}"


@dataclass(frozen=True, slots=True)
class _Mean:
    """A trimmed mean of log times; ``sigma`` is the standard deviation of one of ``count`` values,
    larger where values resemble those next to them."""

    value: float
    sigma: float
    degrees: int
    count: int

    @property
    def error(self) -> float:
        return self.sigma**2 / self.count


@dataclass(frozen=True, slots=True)
class _Difference:
    """Difference of two means of log times, or the mean of log ratios: ``error`` is its variance,
    ``sigma`` and ``runs`` as of ``_Mean``."""

    value: float
    error: float
    degrees: float
    sigma: float
    runs: int

    @property
    def chance(self) -> float:
        """The p-value of an unchanged or faster candidate, one-sided."""
        if self.error <= 0.0:
            return float(self.value <= 0.0)
        return t_tail(self.value / math.sqrt(self.error), self.degrees)


def compare(baseline: Sequence[float], candidate: Sequence[float], goal: Goal) -> Comparison:
    """Test whether the candidate is slower (Yuen's trimmed t-test on logarithms), each measured on
    its own: times in the order in which they were taken.

    ``slower``: beyond chance, by however little. ``not slower``: by less than the effect, beyond
    chance, and there were as many runs as the noise of these asks for; or beyond chance quicker.
    Otherwise there were too few.

    Raises:
        InputError: fewer than ``LEAST_RUNS`` on a side, or a time that is not above 0.
    """
    return _judge(_difference(baseline, candidate), goal, samples=2)


def compare_suite(
    pairs: Sequence[tuple[Sequence[float], Sequence[float]]], goal: Goal
) -> list[Comparison]:
    """Compare several programs at once, each given by its baseline and candidate as for
    ``compare``: where all are unchanged, any is called slower with the goal's probability of a
    false positive at most (Holm 1979).

    Raises:
        InputError: as for ``compare``.
    """
    differences = [_difference(*pair) for pair in pairs]
    chances = [difference.chance for difference in differences]
    return [
        _judge(difference, goal, samples=2, level=level)
        for difference, level in zip(
            differences, _levels(chances, goal.false_positives), strict=True
        )
    ]


def _levels(chances: Sequence[float], level: float) -> list[float]:
    """Return the level that each p-value is compared with: divided by the number of those that are
    not rejected yet, from the smallest on. The first that is not rejected ends it."""
    levels = [level] * len(chances)
    left, rejected = len(chances), True
    for k in sorted(range(len(chances)), key=chances.__getitem__):
        levels[k] = level / left
        rejected = rejected and chances[k] < levels[k]
        left -= rejected
    return levels


def compare_turns(baseline: Sequence[float], candidate: Sequence[float], goal: Goal) -> Comparison:
    """The same for programs that were measured by turns: the times of a turn stand at the same
    place of both samples, and their ratio is what counts.

    Raises:
        InputError: the samples differ in length, or as for ``compare``.
    """
    mean = _mean("candidate", _log_ratios(baseline, candidate))
    difference = _Difference(mean.value, mean.error, mean.degrees, mean.sigma, mean.count)
    return _judge(difference, goal, samples=1)


def _log_ratios(baseline: Sequence[float], candidate: Sequence[float]) -> list[float]:
    """Raises InputError."""
    if len(baseline) != len(candidate):
        raise InputError(
            "has another number of turns.",
            field="candidate",
            value=len(candidate),
            allowed=f"{len(baseline)}, as the baseline",
        )
    pairs = zip(logs(baseline), logs(candidate), strict=True)
    return [after - before for before, after in pairs]


def _mean(name: str, values: Sequence[float]) -> _Mean:
    """Raises InputError."""
    if len(values) < LEAST_RUNS:
        raise InputError(
            "has too few runs.", field=name, value=len(values), allowed=f"{LEAST_RUNS} or more"
        )
    mean, spread, degrees = trimmed(values)
    # Surely alike: what noise is taken for it widens intervals, and costs power.
    return _Mean(mean, spread * math.sqrt(autocorrelation_time(values, Z_99)), degrees, len(values))


def _difference(baseline: Sequence[float], candidate: Sequence[float]) -> _Difference:
    """Raises InputError."""
    before, after = _mean("baseline", logs(baseline)), _mean("candidate", logs(candidate))
    error = before.error + after.error
    degrees = float(before.degrees + after.degrees)
    if error > 0.0:
        # Welch and Satterthwaite.
        degrees = error**2 / (before.error**2 / before.degrees + after.error**2 / after.degrees)
    sigma = math.sqrt((before.sigma**2 + after.sigma**2) / 2.0)
    return _Difference(
        after.value - before.value, error, degrees, sigma, min(before.count, after.count)
    )


def _judge(
    difference: _Difference, goal: Goal, *, samples: int, level: float | None = None
) -> Comparison:
    """With ``level``, that is the probability of calling an unchanged program slower."""
    if level is None:
        level = goal.false_positives
    value, deviation = difference.value, math.sqrt(difference.error)
    lower = value - t_quantile(1.0 - level, difference.degrees) * deviation
    upper = value + t_quantile(1.0 - goal.false_positives, difference.degrees) * deviation
    verdict: Verdict = "cannot tell"
    more = 0
    sigma, runs = difference.sigma, difference.runs
    needed = repetitions(sigma, goal, samples=samples)
    if lower > 0.0:
        verdict = "slower"
    elif upper < 0.0 or (upper < goal.log_effect and runs >= needed):
        verdict = "not slower"
    else:
        # Between none and the effect a difference is told from the farther of the two.
        nearer = max(value, goal.log_effect - value)
        margin = replace(goal, effect=math.expm1(min(goal.log_effect, nearer)))
        if value >= goal.log_effect - value:
            margin = replace(margin, false_positives=max(level, LEAST))
        more = max(1, repetitions(sigma, margin, samples=samples) - runs)
    return Comparison(
        ratio=math.exp(value),
        lower=math.exp(lower),
        upper=math.exp(upper),
        verdict=verdict,
        runs=runs,
        needed=needed,
        more=more,
    )
