"""Uncertainty of a stack's prediction.

The squared deviation of the log of a run's time is a sum: the noise of repeats, the disagreement of
the forms at the question, the error on what was left out near it, and the distance beyond the runs
(but not below their fewest machines where memory may end, which ``low_end`` is about: there that
factor is 0 by the same likelihood).
The factors of the four, and Student's degrees of freedom, maximise the likelihood of runs that were
left out of generated tables (benchmarks/scale/generated.py); each table's own left-out errors then
set its width, against ``PRIOR_COUNT`` errors of size ``PRIOR_ERROR`` where there are few.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from scipy.special import stdtrit

from kongming.arrays import Floats
from kongming.scale.fit.spread import CALIBRATED_AT, LEAST
from kongming.scale.fit.stack import StackFit, left_out_order
from kongming.scale.fit.validation import Fit
from kongming.scale.points import Points, Runs

FREEDOM = 3.0
NOISE, DISAGREEMENT, LEFT_OUT, BEYOND = 0.6, 0.28, 0.40, 0.08
PRIOR_ERROR, PRIOR_COUNT = 0.1, 8.0


@dataclass(frozen=True, slots=True)
class StackSpread:
    """``noise``: standard deviation of the log of a run's time (``StackFit.run_noise``; 0 without
    repeats in files of earlier versions); ``coverage`` at 0.9
    as measured over ``covered`` runs of left-out configurations, None if there were too few."""

    noise: float
    coverage: float | None
    covered: int

    freedom: ClassVar[float] = FREEDOM

    def deviation(self, fit: Fit, points: Points, *, beyond: bool) -> Floats:
        """(n,) standard deviation of the log of the time."""
        assert isinstance(fit, StackFit)
        return self.of(fit.answer(points)[1])

    def of(self, parts: Floats, *, cliff: bool = False) -> Floats:
        """(n,) standard deviation from ``StackFit.answer`` (n, 5). With ``cliff`` it is that of the
        time without one: what distance below the fewest machines adds is the chance of it."""
        disagreement, squared, count, beyond, above = parts.T
        left_out = (squared * count + PRIOR_COUNT * PRIOR_ERROR**2) / (count + PRIOR_COUNT)
        total = (
            NOISE * self.noise**2
            + DISAGREEMENT * disagreement
            + LEFT_OUT * left_out
            + BEYOND * (above if cliff else beyond)
        )
        return np.asarray(np.maximum(np.sqrt(total), LEAST), dtype=np.float64)

    def document(self) -> dict[str, Any]:
        return {"noise": self.noise, "coverage": self.coverage, "covered": self.covered}


def measure_stack_spread(runs: Runs, fit: StackFit) -> StackSpread:
    """Measure the noise, and how often intervals held a run whose configuration was left out: each
    run once, though configurations were also left out with the largest counts."""
    spread = StackSpread(fit.run_noise(runs), None, 0)
    left, alone = fit.left, fit.left.alone
    if not alone or len(runs) < 5:
        return spread
    order = left_out_order(runs.count)
    limits, residuals = np.empty(alone), np.empty(alone)
    parts = fit.left_out_uncertainty()[:alone]
    limits[order] = float(stdtrit(FREEDOM, 0.5 + CALIBRATED_AT / 2)) * spread.of(parts)
    residuals[order] = left.residuals[:alone]
    away = np.log(runs.unit_seconds / runs.typical[runs.owner])
    held = np.abs(residuals[runs.owner] + away) <= limits[runs.owner]
    return StackSpread(spread.noise, float(np.mean(held)), len(runs))
