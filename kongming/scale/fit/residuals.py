"""A Gaussian process on the residuals of Ernest's terms: a local correction near the runs.

The process has mean 0 over log(scale) and log(machines) (Rasmussen and Williams 2006, section 2.2),
so its correction fades with the distance from the runs. It replaces scikit-learn's: it is as
accurate, takes a tenth of the time, and is weighted by repeats (see docs/models.md).
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np

from kongming.arrays import Floats
from kongming.scale.fit.ernest import ErnestFit
from kongming.scale.points import Points, Runs

LENGTHS = (0.35, 1.0, 3.0)
"""Candidate lengths in logs: factors from 1.4 to 20."""

RATIOS = (0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0)
"""Candidate ratios of the variance of the deviation to that of the noise."""

LOCAL_MOST = 400
"""Maximum number of configurations to fit; of more, every second, third, ... is used."""


@dataclass(frozen=True, slots=True)
class Shape:
    """Lengths of scale and machines in logs, and the ratio, of greatest marginal likelihood."""

    lengths: tuple[float, float]
    ratio: float


@dataclass(frozen=True, eq=False, slots=True)
class ResidualFit:
    """Ernest times exp(process). ``places`` (n, 2) are logs of scale and machines, ``dual`` (n,)
    the process's weights, ``inverse`` (n, n) of the covariance over the noise's variance."""

    ernest: ErnestFit
    shape: Shape
    places: Floats
    dual: Floats
    inverse: Floats
    noise: float

    kind = "ernest-residuals"

    def predict(self, points: Points) -> Floats:
        """Return (n,) seconds per iteration."""
        near = _kernel(_places(points), self.places, self.shape)
        return np.asarray(self.ernest.predict(points) * np.exp(near @ self.dual))

    def variance(self, points: Points) -> Floats:
        """Return (n,) the variance of the log deviation: 0 at many runs, the prior's far from
        all.
        """
        near = _kernel(_places(points), self.places, self.shape)
        left = self.shape.ratio - np.einsum("ij,jk,ik->i", near, self.inverse, near)
        return np.asarray(self.noise * np.maximum(left, 0.0))

    def document(self) -> dict[str, Any]:
        return {
            "ernest": self.ernest.document(),
            "lengths": list(self.shape.lengths),
            "ratio": self.shape.ratio,
            "places": self.places.tolist(),
            "dual": self.dual.tolist(),
            "inverse": self.inverse.tolist(),
            "noise": self.noise,
        }


def fit_residuals(
    runs: Runs, ernest: ErnestFit, shape: Shape | None = None, inconsistency: Floats | None = None
) -> ResidualFit:
    """Fit the process to the configurations' typical log residuals; ``shape`` None searches for it.
    A configuration's noise grows by one plus its ``inconsistency`` (count,)."""
    at = _some(runs.count)
    points = runs.configurations.take(at)
    places = _places(points)
    residuals = np.log(runs.typical[at] / ernest.predict(points))
    share = 1.0 / runs.repeats[at]
    if inconsistency is not None:
        share = share * (1.0 + inconsistency[at])
    if shape is None:
        shape = _likeliest(places, residuals, share)
    covariance = _kernel(places, places, shape)
    covariance.flat[:: len(residuals) + 1] += share
    inverse = np.asarray(np.linalg.inv(covariance), dtype=np.float64)
    dual = inverse @ residuals
    noise = max(float(residuals @ dual) / len(residuals), 1e-12)
    return ResidualFit(ernest, shape, places, dual, inverse, noise)


def _some(count: int) -> Any:
    step = -(-count // LOCAL_MOST)
    return np.arange(0, count, step)


def _places(points: Points) -> Floats:
    return np.log(np.column_stack([points.scale, points.machines]))


def _kernel(a: Floats, b: Floats, shape: Shape) -> Floats:
    """Return the (n, m) radial covariance over the noise variance."""
    lengths = np.array(shape.lengths)
    left, right = a / lengths, b / lengths
    squared = np.sum((left[:, None, :] - right[None, :, :]) ** 2, axis=2)
    return np.asarray(shape.ratio * np.exp(-0.5 * squared))


def _likeliest(places: Floats, residuals: Floats, share: Floats) -> Shape:
    """Search a grid; the best noise variance is solved for (equations 5.8 and 5.9 there)."""
    varied = np.ptp(places, axis=0) > 1e-9
    choices = [LENGTHS if moves else (1.0,) for moves in varied]
    best, shape = np.inf, Shape((1.0, 1.0), RATIOS[0])
    n = len(residuals)
    root = np.sqrt(share)
    for lengths in product(*choices):
        near = _kernel(places, places, Shape((lengths[0], lengths[1]), 1.0))
        # One decomposition serves all ratios.
        values, vectors = np.linalg.eigh(near / np.outer(root, root))
        turned = (vectors.T @ (residuals / root)) ** 2
        for ratio in RATIOS:
            spread = 1.0 + ratio * np.maximum(values, 0.0)
            noise = max(float(np.sum(turned / spread)) / n, 1e-12)
            value = n * np.log(noise) + float(np.sum(np.log(spread)))
            if value < best - 1e-9:
                best, shape = value, Shape((lengths[0], lengths[1]), ratio)
    return shape
