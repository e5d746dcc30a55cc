"""Ernest's terms fitted again around each of some machine counts (local regression).

As LOESS with vertices (Cleveland and Grosse 1991): the fits are made once, at a few machine counts;
between two of them the logs of their predictions are interpolated, and beyond the last one its own
fit extrapolates. What was measured far away, as across a memory cliff, hardly counts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from kongming.arrays import Floats
from kongming.scale.fit.ernest import ErnestFit
from kongming.scale.fit.robust import fit_robust, inconsistency
from kongming.scale.fit.terms import Term, matrix
from kongming.scale.points import Points, Runs

WIDTH = 0.8
"""Distance, in logs of the machines, at which a configuration has a quarter of its weight."""

ANCHORS = 6


@dataclass(frozen=True, eq=False, slots=True)
class LocalFit:
    """``anchors`` (k,) machine counts, ascending; ``fits`` their k combinations of terms."""

    anchors: Floats
    fits: tuple[ErnestFit, ...]

    kind = "ernest-local"

    def predict(self, points: Points) -> Floats:
        """(n,) seconds per iteration."""
        first = self.fits[0]
        A = matrix(first.terms, points, first.items)
        logs = np.log(np.column_stack([np.maximum(A @ fit.coef, fit.least) for fit in self.fits]))
        k = len(self.anchors)
        place = np.interp(np.log(points.machines), np.log(self.anchors), np.arange(k))
        below = np.minimum(place.astype(np.intp), max(k - 2, 0))
        part = place - below
        rows = np.arange(len(points))
        above = np.minimum(below + 1, k - 1)
        return np.asarray(np.exp((1.0 - part) * logs[rows, below] + part * logs[rows, above]))

    def document(self) -> dict[str, Any]:
        return {"anchors": self.anchors.tolist(), "fits": [fit.document() for fit in self.fits]}


def fit_local(
    runs: Runs, terms: Sequence[Term], items: float | None = None, *, plain: ErnestFit
) -> LocalFit:
    """Fit around up to ``ANCHORS`` of the machine counts, the lowest and the highest among them;
    ``plain`` is the robust fit of the same runs."""
    # Around a count that the others contradict there is nothing to interpolate to.
    trusted = inconsistency(runs, plain) <= 1.0
    counts = np.unique(runs.configurations.machines[trusted])
    if not len(counts):
        return LocalFit(np.unique(runs.points.machines)[:1], (plain,))
    places = np.linspace(0, len(counts) - 1, min(len(counts), ANCHORS)).round().astype(np.intp)
    anchors = counts[places]
    logs = np.log(runs.configurations.machines)
    fits = [
        fit_robust(
            runs, terms, items, nearness=(1.0 + ((logs - np.log(anchor)) / WIDTH) ** 2) ** -2
        )
        for anchor in anchors
    ]
    return LocalFit(anchors, tuple(fits))
