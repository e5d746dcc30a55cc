"""Baselines for scale models: the time of the nearest run, and Amdahl's law."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from kongming.arrays import Floats
from kongming.scale.fit.ernest import ErnestFit, solve
from kongming.scale.points import Points, Runs


@dataclass(frozen=True, eq=False, slots=True)
class NearestFit:
    """Predict the time of the nearest configuration. ``beyond`` is used outside the trained ranges
    (None: the nearest configuration is used there as well, as a baseline)."""

    machines: Floats
    scale: Floats
    seconds: Floats
    beyond: ErnestFit | None = None

    kind = "repeat-nearest"

    def predict(self, points: Points) -> Floats:
        """(n,) seconds per iteration."""
        steps = np.abs(np.log(points.machines)[:, None] - np.log(self.machines))
        steps = steps + np.abs(np.log(points.scale)[:, None] - np.log(self.scale))
        # Rounded, or among two that are equally near the unit of the scale would decide.
        nearest = self.seconds[np.argmin(np.round(steps, 9), axis=1)]
        if self.beyond is None:
            return np.asarray(nearest)
        outside = (
            (points.machines > self.machines.max())
            | (points.machines < self.machines.min())
            | (points.scale > self.scale.max())
            | (points.scale < self.scale.min())
        )
        return np.where(outside, self.beyond.predict(points), nearest)

    def document(self) -> dict[str, Any]:
        return {
            "machines": self.machines.tolist(),
            "scale": self.scale.tolist(),
            "seconds": self.seconds.tolist(),
            "beyond": None if self.beyond is None else self.beyond.document(),
        }


def fit_nearest(runs: Runs, beyond: ErnestFit | None = None) -> NearestFit:
    """Store each configuration's typical time."""
    points = runs.configurations
    return NearestFit(points.machines, points.scale, runs.typical, beyond)


@dataclass(frozen=True, eq=False, slots=True)
class AmdahlFit:
    """scale x (serial + parallel / machines), in seconds: Amdahl 1967."""

    serial: float
    parallel: float

    kind = "amdahl"

    def predict(self, points: Points) -> Floats:
        """(n,) seconds per iteration."""
        seconds = points.scale * (self.serial + self.parallel / points.machines)
        return np.maximum(seconds, np.finfo(np.float64).tiny)

    def document(self) -> dict[str, Any]:
        return {"serial": self.serial, "parallel": self.parallel}


def fit_amdahl(runs: Runs) -> AmdahlFit:
    """Fit both coefficients by non-negative least squares."""
    points = runs.points
    A = np.column_stack([points.scale, points.load])
    serial, parallel = solve(A, runs.unit_seconds).tolist()
    return AmdahlFit(serial, parallel)
