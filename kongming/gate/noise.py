"""Run-to-run noise, and the repetitions that an effect needs. Pure.

All of it is about logarithms of times, by trimmed means (20 % from each end): one run in five may
be an outlier on either side without moving them. Their standard error follows from the winsorised
standard deviation (Tukey and McLaughlin 1963; Yuen 1974, Biometrika 61), which unlike the median's
holds for two-peaked times as well. Quantiles of chi-square are an approximation in closed form, and
nothing here needs more than the standard library.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist, median, stdev

from kongming.gate.robust import (
    TRIMMED,
    autocorrelation_time,
    chi_square_quantile,
    logs,
    t_quantile,
    trimmed,
    untrimmed,
)
from kongming.records.errors import InputError

LEAST_RUNS = 6
"""The fewest runs that a noise is estimated from: trimmed, four of them are left."""

CONFIDENCE = 0.9
"""With about this probability the noise is not above its upper bound."""

_TAIL = 0.05
"""Quantile of chi-square for that bound: winsorised variances spread more than chi-square says. In
simulations of 6 to 20 runs, normal, with outliers, skewed and two-peaked, it
covers 79 to 99 %."""

LEAST = 1e-6
"""Effects and probabilities of error below it are out of reach of any measurement here, and of the
approximate quantiles."""

BLOCKS = 40
"""Blocks of consecutive rounds that are taken for independent."""

_FAR = 3.0
"""Standard deviations from the trimmed mean beyond which, and beyond the effect, a run is an
outlier."""

_LONGEST = 400
"""Repetitions beyond which no use is made of a share of outliers."""

_Z_90 = 1.645
"""Standard normal deviates within which 90 % lie, and beyond which 5 % on one side."""

_THRESHOLD = 0.6
"""Share of the effect beyond which a program is called slower by medians: 3 % for 5 %."""


@dataclass(frozen=True, slots=True)
class Goal:
    """Effect to see: ``effect`` (0.02: 2 % slower) with probability ``power``, while an unchanged
    program is called slower with probability ``false_positives`` (one-sided)."""

    effect: float = 0.02
    false_positives: float = 0.05
    power: float = 0.9

    def __post_init__(self) -> None:
        for name, least, most in (
            ("effect", LEAST, 1.0 - LEAST),
            ("false_positives", LEAST, 0.5),
            ("power", 0.5, 1.0 - LEAST),
        ):
            value = getattr(self, name)
            if not least <= value <= most:
                raise InputError(
                    "is out of range.", field=name, value=value, allowed=f"{least:g} to {most:g}"
                )

    @property
    def log_effect(self) -> float:
        return math.log1p(self.effect)


@dataclass(frozen=True, slots=True)
class Noise:
    """Standard deviation of the log of one run's time: as estimated from ``runs`` runs, and its
    upper confidence bound (``CONFIDENCE``). Multiplied by 100 it is about per cent."""

    runs: int
    estimate: float
    upper: float


def noise(times: Sequence[float]) -> Noise:
    """Estimate the noise of times in any unit above 0.

    Raises:
        InputError: there are fewer than ``LEAST_RUNS``, or one is not above 0.
    """
    if len(times) < LEAST_RUNS:
        raise InputError(
            "are too few for a noise.", field="runs", value=len(times), allowed=f"{LEAST_RUNS} up"
        )
    _, spread, degrees = trimmed(logs(times))
    return Noise(
        len(times),
        spread,
        spread * math.sqrt(degrees / chi_square_quantile(_TAIL, degrees)),
    )


def repetitions(sigma: float, goal: Goal, *, samples: int = 2) -> int:
    """Repetitions of each of the two programs for the goal, where one run's log time has the
    standard deviation ``sigma``: the smallest whose trimmed means differ clearly enough. With
    ``samples`` 1 they are pairs of runs, and ``sigma`` is that of the log ratio of a pair."""
    needed = LEAST_RUNS
    while True:
        degrees = samples * (untrimmed(needed) - 1)
        reach = t_quantile(1.0 - goal.false_positives, degrees) + t_quantile(goal.power, degrees)
        exact = samples * (reach * sigma / goal.log_effect) ** 2
        if exact <= needed:
            return needed
        # Student's t only shrinks as the number grows: jumping to the next candidate is safe
        # once t has settled, and one step at a time is before.
        needed = needed + 1 if needed < 40 else max(needed + 1, math.ceil(exact * 0.98))


def repetitions_at_most(times: Sequence[float], goal: Goal) -> int:
    """Repetitions of each of two programs that these runs leave possible: for the upper bound of
    their noise and, where some of them are outliers, so many that of these no more are to be
    expected than are trimmed.

    What is trimmed is not in the noise. Few repetitions may have more of it than the trimming
    takes; and of more than a fifth it takes a part only, so that the trimmed mean moves with their
    share, by at most the untrimmed noise over the share of runs that is left. Raises InputError as
    ``noise``.
    """
    measured, values = noise(times), logs(times)
    needed = repetitions(measured.upper, goal)
    mean, spread, _ = trimmed(values)
    far = max(_FAR * spread, goal.log_effect)
    outliers = max(sum(v > mean + far for v in values), sum(v < mean - far for v in values))
    if not outliers:
        return needed
    untrimmed = repetitions(stdev(values) / (1.0 - 2.0 * TRIMMED), goal)
    share = _share_at_most(outliers, len(values))
    enough = next(
        (n for n in range(LEAST_RUNS, min(untrimmed, _LONGEST)) if _trims(n, share)), untrimmed
    )
    return max(needed, enough)


def smallest_effect(sigma: float, runs: int, goal: Goal, *, samples: int = 2) -> float:
    """The effect that ``runs`` repetitions of each program show at the goal's rates; ``samples`` as
    for ``repetitions``."""
    degrees = samples * (untrimmed(runs) - 1)
    reach = t_quantile(1.0 - goal.false_positives, degrees) + t_quantile(goal.power, degrees)
    return math.expm1(reach * sigma * math.sqrt(samples / runs))


def rounds_needed(times: Sequence[float], goal: Goal) -> int:
    """Rounds, made one right after another, that each of two programs needs for the goal where
    their medians are compared with a threshold of ``_THRESHOLD`` of the effect.

    Of more than ``BLOCKS`` rounds the noise is that of the medians of as many blocks of consecutive
    rounds, and larger where neighbouring blocks are alike (rank correlation, as of an AR(1)
    series). The interval of the median has to be narrower than the threshold too: a median between
    two peaks jumps from one to the other, however well the mean is known. Raises InputError as
    ``noise``.
    """
    return max(1, len(times) // BLOCKS) * blocks_needed(blocks(times), goal)


def blocks(times: Sequence[float]) -> list[float]:
    """The medians of ``BLOCKS`` or a few more blocks of consecutive rounds; of fewer rounds than
    that, the rounds."""
    size = max(1, len(times) // BLOCKS)
    return [median(times[k : k + size]) for k in range(0, len(times) - size + 1, size)]


def blocks_needed(seconds: Sequence[float], goal: Goal) -> int:
    """``rounds_needed`` in blocks, or in takes, given by the median of each."""
    alike = autocorrelation_time(seconds)
    needed = repetitions(noise(seconds).upper * math.sqrt(alike), goal)
    # Between order statistics: nothing is assumed of the shape.
    reach = _Z_90 * math.sqrt(len(seconds) * alike) / 2.0
    lowest = max(0, math.floor(len(seconds) / 2.0 - reach))
    ordered = logs(sorted(seconds))
    width = ordered[-1 - lowest] - ordered[lowest]
    wider = width / (_THRESHOLD * goal.log_effect)
    return needed if wider <= 1.0 else max(needed, math.ceil(len(seconds) * wider**2))


def _share_at_most(count: int, of: int) -> float:
    """Upper bound of a share at ``CONFIDENCE`` (Wilson 1927)."""
    share, z = count / of, NormalDist().inv_cdf(CONFIDENCE)
    middle = share + z * z / (2.0 * of)
    reach = z * math.sqrt(share * (1.0 - share) / of + (z / (2.0 * of)) ** 2)
    return (middle + reach) / (1.0 + z * z / of)


def _trims(runs: int, share: float) -> bool:
    """Return whether of so many runs, each an outlier with probability ``share``, at most ``_TAIL``
    of the time more are than are trimmed."""
    trimmed = sum(
        math.comb(runs, n) * share**n * (1.0 - share) ** (runs - n)
        for n in range(int(TRIMMED * runs) + 1)
    )
    return trimmed >= 1.0 - _TAIL
