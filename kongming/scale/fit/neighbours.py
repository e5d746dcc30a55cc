"""The nearest configurations' times, carried over to a question by Ernest's terms."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from kongming.arrays import Floats
from kongming.scale.fit.ernest import ErnestFit
from kongming.scale.fit.robust import inconsistency
from kongming.scale.points import Points, Runs

_NEAR = 1e-4
"""Squared distance (in logs) within which a configuration is taken to be the question's own."""


@dataclass(frozen=True, eq=False, slots=True)
class NeighbourFit:
    """``places`` (n, 2) are logs of scale and machines, ``residuals`` (n,) logs of typical over
    ``trend``'s time, ``trust`` (n,) weights that are low for what lies far from the trend, as
    across a memory cliff. A prediction is the trend's times the mean of the residuals, weighted by
    the inverse fourth power of the distance (Shepard 1968)."""

    trend: ErnestFit
    places: Floats
    residuals: Floats
    trust: Floats

    kind = "neighbours"

    def predict(self, points: Points) -> Floats:
        """(n,) seconds per iteration."""
        places = np.log(np.column_stack([points.scale, points.machines]))
        squared = np.sum((places[:, None, :] - self.places[None, :, :]) ** 2, axis=2)
        weights = self.trust * (squared + _NEAR) ** -2
        carried = weights @ self.residuals / weights.sum(axis=1)
        return np.asarray(self.trend.predict(points) * np.exp(carried))

    def document(self) -> dict[str, Any]:
        return {
            "trend": self.trend.document(),
            "places": self.places.tolist(),
            "residuals": self.residuals.tolist(),
            "trust": self.trust.tolist(),
        }


def fit_neighbours(runs: Runs, trend: ErnestFit) -> NeighbourFit:
    """Keep how far each configuration's typical time is from the trend."""
    points = runs.configurations
    places = np.log(np.column_stack([points.scale, points.machines]))
    residuals = np.log(runs.typical / trend.predict(points))
    return NeighbourFit(trend, places, residuals, 1.0 / (1.0 + inconsistency(runs, trend) ** 2))
