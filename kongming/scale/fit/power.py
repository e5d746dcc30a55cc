"""A power law: log time is linear in the logs of scale and machines."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from kongming.arrays import Floats
from kongming.scale.fit.robust import HUBER, LEAST_SCALE, weight_of
from kongming.scale.points import Points, Runs

ASSUMED = (1.0, -0.7)
"""Exponents of scale and machines without evidence: most of the work is parallel."""

RIDGE = 0.05
"""Weight of the assumed exponents, in configurations at a distance of one in logs."""


@dataclass(frozen=True, eq=False, slots=True)
class PowerFit:
    """exp(constant) x scale^exponents[0] x machines^exponents[1] seconds."""

    constant: float
    exponents: tuple[float, float]

    kind = "power-law"

    def predict(self, points: Points) -> Floats:
        """(n,) seconds per iteration."""
        return np.asarray(np.exp(self.constant + _logs(points) @ np.array(self.exponents)))

    def document(self) -> dict[str, Any]:
        return {"constant": self.constant, "exponents": list(self.exponents)}


def fit_power(runs: Runs) -> PowerFit:
    """Fit by Huber's loss, with the exponents drawn towards ``ASSUMED``."""
    logs = _logs(runs.configurations)
    y = np.log(runs.typical)
    weights = weight_of(runs)
    own = weights
    assumed = np.array(ASSUMED)
    exponents, constant = assumed, 0.0
    for _ in range(6):
        center = own @ logs / own.sum()
        X = logs - center
        G = X.T @ (X * own[:, None]) + RIDGE * np.eye(2)
        right = X.T @ (own * (y - own @ y / own.sum())) + RIDGE * assumed
        exponents = np.linalg.solve(G, right)
        constant = float(own @ (y - logs @ exponents) / own.sum())
        away = np.abs(y - constant - logs @ exponents)
        scale = max(1.4826 * float(np.median(away)), LEAST_SCALE)
        own = weights / np.maximum(away / (HUBER * scale), 1.0)
    return PowerFit(constant, (float(exponents[0]), float(exponents[1])))


def _logs(points: Points) -> Floats:
    return np.log(np.column_stack([points.scale, points.machines]))
