"""A fixed time that every context has, as that of starting a job.

The model over contexts multiplies: a context has its own level, by which all of its terms are
longer. Starting takes as long for a small input as for a large one, and a level that is right for
the work is wrong for it. So the terms, the cliff and the process are fitted once more, to the times
without a fixed one, and taken where that lessens the errors of what was left out. A context with
more than a few configurations has an intercept of its own, and is answered as if there were none.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from kongming.arrays import Floats
from kongming.scale.fit.context_spread import ContextSpread
from kongming.scale.fit.contexts.context_cliff import ContextCliff
from kongming.scale.fit.contexts.context_common import Together, fit_common
from kongming.scale.fit.contexts.context_process import Process
from kongming.scale.fit.ernest import ErnestFit
from kongming.scale.fit.terms import SETUP
from kongming.scale.points import Integers

FIRST, FURTHER = 0.85, (0.6, 0.95)
"""Shares of the shortest run's time that are tried for the fixed one; the further ones where the
first is proved, or where a set-up term already explains much of what it would."""

PROVED, OF_CONTEXTS, WORSE = 0.2, 0.05, 0.1
"""Logs of the factors by which a fixed time has to lessen the product of the errors of left-out
configurations and of left-out contexts, and those of contexts; and by which it may raise those of
configurations, which their own contexts tell nearly as well as the noise allows."""

IN_CONTEXTS = 0.7
"""Share of the contexts in which the errors, when they are left out, have to fall: a fixed time
that all of them have does not help a few alone."""

LEAST_CONTEXTS = 3
"""Minimum number of contexts: of two, the one that is left out is predicted by the other alone."""

LEAST_ERROR = 0.003
"""Is added to an error (in logs), below which a difference is of no use."""

LARGEST_ERROR = 1.0
"""Errors (in logs) above this are alike."""


@dataclass(frozen=True, eq=False, slots=True)
class FixedTime:
    """The model over contexts above the ``seconds`` that every run has once, of however many
    iterations; ``known`` and ``new`` as in ``ContextModel``, of this model."""

    seconds: float
    trend: ErnestFit
    cliff: ContextCliff | None
    process: Process
    known: ContextSpread
    new: ContextSpread

    def document(self) -> dict[str, Any]:
        """Return it as JSON types; the configurations are the model's over contexts."""
        return {
            "seconds": self.seconds,
            "trend": self.trend.document(),
            "cliff": None if self.cliff is None else self.cliff.document(),
            **self.process.document(),
            "known": self.known.document(),
            "new": self.new.document(),
        }

    def report(self) -> dict[str, Any]:
        """Return the seconds, and the terms of what is above them."""
        keys = (term.key for term in self.trend.terms)
        return {
            "seconds": self.seconds,
            "terms": dict(zip(keys, self.trend.coef.tolist(), strict=True)),
        }


@dataclass(frozen=True, eq=False, slots=True)
class Above:
    """Configurations with their ``data.fixed`` seconds, and what is fitted above those."""

    data: Together
    trend: ErnestFit
    cliff: ContextCliff | None
    process: Process

    @classmethod
    def fit(cls, data: Together, seconds: float) -> Above:
        """Fit the terms, a cliff and the process above the fixed ``seconds``."""
        data = replace(data, fixed=seconds)
        return cls(data, *fit_common(data))

    def left_out(self, folds: Sequence[Integers] | None = None) -> tuple[Floats, Floats]:
        """Predict as ``Process.left_out`` (None: ``left_out_each``), but logs of the time and not
        of what is above the fixed one."""
        process = self.process
        residuals, variances = (
            process.left_out_each() if folds is None else process.left_out(list(folds))
        )
        logs = np.log(self.data.above) - residuals
        total = np.logaddexp(np.log(self.data.fixed / self.data.points.iterations), logs)
        return np.log(self.data.seconds) - total, variances * np.exp(2.0 * (logs - total))


def find_fixed_time(data: Together, without: Process, groups: Sequence[Integers]) -> Above | None:
    """Return the model with the fixed time whose errors of left-out configurations and contexts
    (``groups`` of configurations) are least; None where contexts are few, or do not prove a fixed
    time against the process ``without``."""
    if len(groups) < LEAST_CONTEXTS:
        return None
    shortest = float((data.seconds * data.points.iterations).min())
    of_singles = _loss(without.left_out_each()[0])
    left_out = without.left_out(list(groups))[0]
    of_groups, of_each = _loss(left_out), _errors(left_out, groups)

    def tried(share: float) -> tuple[float, Above] | None:
        """Return the change of both losses and the model, if it is proved."""
        above = Above.fit(data, share * shortest)
        single = _loss(above.left_out()[0]) - of_singles
        left_out = above.left_out(groups)[0]
        group = _loss(left_out) - of_groups
        proved = single + group < -PROVED and group < -OF_CONTEXTS and single < WORSE
        falls = float(np.mean(_errors(left_out, groups) < of_each))
        return (single + group, above) if proved and falls >= IN_CONTEXTS else None

    first = tried(FIRST)
    if first is None and all(term.key != SETUP for term in data.terms):
        return None
    further = (tried(share) for share in FURTHER)
    proved = [each for each in (first, *further) if each is not None]
    return min(proved, key=lambda each: each[0])[1] if proved else None


def _loss(residuals: Floats) -> float:
    """Return the log of the mean error (in logs)."""
    return float(np.log(np.mean(np.minimum(np.abs(residuals), LARGEST_ERROR)) + LEAST_ERROR))


def _errors(residuals: Floats, groups: Sequence[Integers]) -> Floats:
    """(groups,) mean error (in logs) of each group."""
    errors = np.minimum(np.abs(residuals), LARGEST_ERROR)
    return np.array([errors[group].mean() for group in groups])
