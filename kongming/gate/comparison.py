"""The verdict on two samples of times: slower, not slower, or too few repetitions to tell. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from kongming.gate.noise import LEAST_RUNS, Goal
from kongming.gate.robust import logs, t_quantile, trimmed
from kongming.records.errors import InputError

Verdict = Literal["slower", "not slower", "cannot tell"]


@dataclass(frozen=True, slots=True)
class Comparison:
    """``ratio`` of the candidate's time to the baseline's with one-sided bounds, each of which is
    wrong with the goal's probability of a false positive."""

    ratio: float
    lower: float
    upper: float
    verdict: Verdict


def compare(baseline: Sequence[float], candidate: Sequence[float], goal: Goal) -> Comparison:
    """Test whether the candidate is slower (Yuen's trimmed t-test on logarithms).

    ``slower``: beyond doubt, by however little. ``not slower``: by less than the effect, beyond
    doubt. Otherwise there were too few runs.

    Raises:
        InputError: fewer than ``LEAST_RUNS`` on a side, or a time that is not above 0.
    """
    sides = []
    for name, times in (("baseline", baseline), ("candidate", candidate)):
        if len(times) < LEAST_RUNS:
            raise InputError(
                "has too few runs.", field=name, found=len(times), allowed=f"{LEAST_RUNS} or more"
            )
        mean, spread, degrees = trimmed(logs(times))
        sides.append((mean, spread**2 / len(times), degrees))
    (before, error_a, degrees_a), (after, error_b, degrees_b) = sides
    difference, error = after - before, error_a + error_b
    reach = 0.0
    if error > 0.0:
        # Welch and Satterthwaite.
        welch = error**2 / (error_a**2 / degrees_a + error_b**2 / degrees_b)
        reach = t_quantile(1.0 - goal.false_positives, welch) * math.sqrt(error)
    lower, upper = difference - reach, difference + reach
    verdict: Verdict = "cannot tell"
    if lower > 0.0:
        verdict = "slower"
    elif upper < goal.log_effect:
        verdict = "not slower"
    return Comparison(math.exp(difference), math.exp(lower), math.exp(upper), verdict)
