"""Uncertainty of a prediction by the model over contexts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, runtime_checkable

import numpy as np

from kongming.arrays import Floats
from kongming.scale.fit.spread import LEAST
from kongming.scale.fit.validation import Fit
from kongming.scale.points import Configuration, Points

FREEDOM = 4.0


@dataclass(frozen=True, eq=False, slots=True)
class Answer:
    """Median ``seconds`` (n,) per iteration, ``variance`` (n,) of the log of a run's time with its
    ``noise`` (a standard deviation), and the ``least`` and ``most`` (n,) seconds that the runs
    allow as a median."""

    seconds: Floats
    variance: Floats
    noise: float
    least: Floats
    most: Floats


@runtime_checkable
class Limited(Protocol):
    """A fit that tells how far its runs let it be trusted."""

    def answer(self, points: Points) -> Answer:
        """Return medians, variances and limits, which share most of what they need."""

    def chance_of_cliff(self, at: Configuration) -> float:
        """Probability that memory does not suffice at fewer machines than were run."""

    def fewest_machines(self) -> float | None:
        """Return the fewest machines whose memory sufficed for this input; None if only other
        inputs tell."""


@dataclass(frozen=True, slots=True)
class ContextSpread:
    """``widen``: calibration factor of the process's deviations, from what was left out;
    ``coverage`` at 0.9 as measured over ``covered`` runs of what was left out."""

    widen: float
    coverage: float | None
    covered: int

    freedom: ClassVar[float] = FREEDOM

    def deviation(self, fit: Fit, points: Points, *, beyond: bool) -> Floats:
        """(n,) standard deviation of the log of the time."""
        assert isinstance(fit, Limited)
        return self.of(fit.answer(points))

    def of(self, answer: Answer) -> Floats:
        """(n,) the same from ``ContextFit.answer``."""
        return np.maximum(self.widen * np.sqrt(answer.variance), LEAST)

    def document(self) -> dict[str, Any]:
        return {"widen": self.widen, "coverage": self.coverage, "covered": self.covered}
