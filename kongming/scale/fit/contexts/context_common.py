"""Parts that all contexts have in common: Ernest's terms, a memory cliff, and a process over the
rest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from kongming.arrays import Floats
from kongming.scale.context_columns import Column, Context
from kongming.scale.fit.contexts.context_cliff import (
    EXPLAINED,
    ContextCliff,
    find_cliff,
    steps,
    total_of,
)
from kongming.scale.fit.contexts.context_process import Inputs, Process, fit_process
from kongming.scale.fit.ernest import FLOOR, ErnestFit
from kongming.scale.fit.robust import solve_robust
from kongming.scale.fit.terms import Term, matrix
from kongming.scale.points import Integers, Points

ROUNDS, CLIFF_ROUNDS = 4, 3


@dataclass(frozen=True, eq=False, slots=True)
class Together:
    """Configurations over contexts, (n,) each; ``seconds`` are per iteration, ``fixed`` per run."""

    columns: tuple[Column, ...]
    contexts: tuple[Context, ...]
    inputs: Inputs
    points: Points
    seconds: Floats
    repeats: Floats
    terms: tuple[Term, ...]
    items: float | None
    fixed: float = 0.0

    @property
    def above(self) -> Floats:
        """(n,) seconds per iteration above the ``fixed`` ones, which every run has once."""
        return self.seconds - self.fixed / self.points.iterations

    @property
    def noise(self) -> Floats:
        """(n,) variance of the log of ``above``, as ``day_noise``."""
        return np.asarray(self.day_noise * (self.seconds / self.above) ** 2)

    @property
    def day_noise(self) -> Floats:
        """(n,) variance of the log of the time, in units of one run's: half of it is of the day,
        which repeats share."""
        return 0.5 + 0.5 / self.repeats

    def take(self, index: Any) -> Together:
        return replace(
            self,
            inputs=self.inputs.take(index),
            points=self.points.take(index),
            seconds=self.seconds[index],
            repeats=self.repeats[index],
        )


def fit_common(
    data: Together, of: Process | None = None
) -> tuple[ErnestFit, ContextCliff | None, Process]:
    """Fit the terms, a cliff in what they leave over, and the process; with the sizes and the
    outliers ``of`` another process over the same configurations, if there is one."""
    points, owner = data.points, data.inputs.owner
    terms, items = data.terms, data.items
    without = trend = _trend(points, data.above, owner, terms, items)
    left = _leveled(np.log(data.above / trend.predict(points)), owner)
    unexplained, cliff = total_of(left), None
    for _ in range(CLIFF_ROUNDS):
        cliff = find_cliff(data.columns, data.contexts, points, owner, left)
        if cliff is None:
            break
        jumps = steps(cliff, data.contexts, points, owner)
        trend = _trend(points, data.above * np.exp(-jumps), owner, terms, items)
        smooth = _leveled(np.log(data.above / trend.predict(points)) - jumps, owner)
        left = smooth + jumps
    if cliff is None or total_of(smooth) > (1.0 - EXPLAINED) * unexplained:
        cliff, trend = None, without
    values = np.log(data.above / trend.predict(points))
    values = values - steps(cliff, data.contexts, points, owner)
    if of is None:
        return trend, cliff, fit_process(data.inputs, values, data.noise)
    return trend, cliff, Process.of(data.inputs, values, data.noise, of.extra, of.sizes)


def _leveled(residual: Floats, owner: Integers) -> Floats:
    """(n,) residuals without the median of each context's."""
    levels = {i: np.median(residual[owner == i]) for i in np.unique(owner).tolist()}
    return np.asarray(residual - np.array([levels[i] for i in owner.tolist()]))


def _trend(
    points: Points, seconds: Floats, owner: Integers, terms: Sequence[Term], items: float | None
) -> ErnestFit:
    """Fit the terms' common curve: each context's times are divided by its own level, and levels
    and curve are estimated in turns."""
    A = matrix(terms, points, items)
    logs = np.log(seconds)
    level = np.array(
        [logs[owner == i].mean() if (owner == i).any() else 0.0 for i in range(owner.max() + 1)]
    )
    coef = np.zeros(A.shape[1])
    least = 1e-12
    for _ in range(ROUNDS):
        relative = np.exp(logs - level[owner])
        coef = solve_robust(A, relative, np.ones(len(logs)))
        least = FLOOR * float(relative.min())
        left = logs - np.log(np.maximum(A @ coef, least))
        level = np.array(
            [np.median(left[owner == i]) if (owner == i).any() else 0.0 for i in range(len(level))]
        )
    scale = float(np.exp(np.mean(level)))
    return ErnestFit(tuple(terms), coef * scale, items, True, least * scale)
