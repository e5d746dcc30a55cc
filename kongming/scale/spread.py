"""How sure a prediction is: noise, uncertainty of the coefficients, and what leaving out taught.

The noise and a parametric bootstrap of the coefficients give a standard deviation at any point,
wider the farther it is from the runs; left-out configurations, and the largest machine counts
left out, tell how many times too narrow that is. The coverage is measured in the same way.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import stdtr, stdtrit

from kongming.dataset import Floats
from kongming.scale.ernest import ErnestFit, solve
from kongming.scale.nearest import NearestFit
from kongming.scale.points import Points, Runs
from kongming.scale.residuals import ResidualFit
from kongming.scale.validation import Fit, Fitter, folds_of, largest_out, largest_scale_out

__all__ = ["CALIBRATED_AT", "Spread", "measure_spread"]

DRAWS = 60
CALIBRATED_AT = 0.9
LEAST = 1e-9
"""A standard deviation (of a log) that is never fallen short of."""

MANY = 20
"""Left-out runs from which the quantile itself is calibrated, not only the middle."""

WIDEST = 8.0
"""Logs of a prediction differ by less than this, or it would be no number any more."""


@dataclass(frozen=True, eq=False, slots=True)
class Spread:
    """``draws`` (k, p) coefficients of Ernest's terms; ``noise`` in seconds, or in logs where
    ``relative``; ``inside`` and ``outside``: by how much the deviation is multiplied among the
    trained configurations and beyond; ``freedom`` of Student's t; ``coverage`` at 0.9 as
    measured over ``covered`` left-out runs, None where there were too few to tell."""

    draws: Floats
    noise: float
    relative: bool
    inside: float
    outside: float
    freedom: float
    coverage: float | None
    covered: int

    def deviation(self, fit: Fit, points: Points, *, beyond: bool) -> Floats:
        """(n,) of the log of the time."""
        return _deviation(fit, points, self.draws, self.noise, self.relative) * (
            self.outside if beyond else self.inside
        )

    def factor(self, deviation: float, level: float) -> float:
        """Upper end over the median; the lower end is the median over it."""
        return float(np.exp(min(float(stdtrit(self.freedom, 0.5 + level / 2)) * deviation, WIDEST)))

    def probability(self, deviation: float, log_ratio: float) -> float:
        """That the time over its median is at most exp(``log_ratio``)."""
        return float(stdtr(self.freedom, log_ratio / max(deviation, LEAST)))

    def document(self) -> dict[str, Any]:
        return {
            "draws": self.draws.tolist(),
            "noise": self.noise,
            "relative": self.relative,
            "inside": self.inside,
            "outside": self.outside,
            "freedom": self.freedom,
            "coverage": self.coverage,
            "covered": self.covered,
        }


def measure_spread(runs: Runs, fit: Fit, fitter: Fitter, *, seed: int = 0) -> Spread:
    """From the runs of a fit, with ``fitter`` for the runs that are left after leaving some out."""
    random = np.random.default_rng(seed)
    noise, relative = _noise(fit, runs)
    draws = _draws(fit, runs, noise, random)
    freedom = float(np.clip(runs.count - _active(fit), 1.0, 100.0))
    inside = _standardised(
        [
            (runs.without(fold), runs.within(fold))
            for fold in folds_of(runs.count, 40)
            if runs.count > 2
        ],
        fitter,
        random,
    )
    outside = [
        _standardised([part], fitter, random)
        for part in (*largest_out(runs), *largest_scale_out(runs))
    ]
    wide = _widening(inside, freedom)
    covered = None
    if len(inside) >= 5:
        limit = float(stdtrit(freedom, 0.5 + CALIBRATED_AT / 2))
        others = [np.delete(inside, i) for i in range(len(inside))]
        covered = float(
            np.mean(
                [
                    own <= limit * _widening(rest, freedom)
                    for own, rest in zip(inside, others, strict=True)
                ]
            )
        )
    return Spread(
        draws=draws,
        noise=noise,
        relative=relative,
        inside=wide,
        outside=max(wide, _beyond(outside)),
        freedom=freedom,
        coverage=covered,
        covered=len(inside),
    )


def _standardised(
    parts: list[tuple[Runs, Runs]], fitter: Fitter, random: np.random.Generator
) -> Floats:
    """Absolute log errors of single left-out runs over the deviation foreseen for them."""
    found = []
    for trained, left in parts:
        fit = fitter(trained)
        noise, relative = _noise(fit, trained)
        draws = _draws(fit, trained, noise, random)
        error = np.abs(np.log(left.unit_seconds / fit.predict(left.points)))
        found.append(error / _deviation(fit, left.points, draws, noise, relative))
    return np.concatenate(found) if found else np.empty(0)


def _widening(standardised: Floats, freedom: float) -> float:
    n = len(standardised)
    if n < 3:
        return 1.0
    if n >= MANY:
        rank = min(int(np.ceil((n + 1) * CALIBRATED_AT)), n)
        quantile = float(np.sort(standardised)[rank - 1])
        return max(quantile / float(stdtrit(freedom, 0.5 + CALIBRATED_AT / 2)), 0.5)
    return max(float(np.median(standardised)) / float(stdtrit(freedom, 0.75)), 1.0)


def _beyond(parts: list[Floats]) -> float:
    """The worst of the parts: the runs of one part err together, by what the terms lack, so that
    each part says one thing, and there are few of them."""
    sizes = [float(np.sqrt(np.mean(part**2))) for part in parts if len(part)]
    return min(max(sizes, default=1.0), 10.0)


def _noise(fit: Fit, runs: Runs) -> tuple[float, bool]:
    """Of single runs around the fit: a standard deviation, and whether it is of logs."""
    predicted = fit.predict(runs.points)
    left = max(len(runs) - _active(fit), 1)
    if isinstance(fit, ErnestFit) and not fit.relative:
        size = float(np.sqrt(np.sum((runs.unit_seconds - predicted) ** 2) / left))
        return max(size, LEAST * float(runs.unit_seconds.mean())), False
    if isinstance(fit, ResidualFit):
        return max(float(np.sqrt(fit.noise)), LEAST), True
    if isinstance(fit, NearestFit):
        # It meets every run by heart: its errors are those of leaving one out.
        near = [float(np.log(runs.typical[i] / _nearest_other(runs, i))) for i in range(runs.count)]
        return max(float(np.sqrt(np.mean(np.square(near)))), LEAST), True
    logs = np.log(runs.unit_seconds / predicted)
    return max(float(np.sqrt(np.sum(logs**2) / left)), LEAST), True


def _nearest_other(runs: Runs, own: int) -> float:
    points = runs.configurations
    steps = np.abs(np.log(points.machines / points.machines[own]))
    steps = steps + np.abs(np.log(points.scale / points.scale[own]))
    steps[own] = np.inf
    return float(runs.typical[int(np.argmin(steps))])


def _backbone(fit: Fit) -> ErnestFit | None:
    if isinstance(fit, ErnestFit):
        return fit
    if isinstance(fit, ResidualFit):
        return fit.ernest
    return fit.beyond if isinstance(fit, NearestFit) else None


def _active(fit: Fit) -> int:
    backbone = _backbone(fit)
    return 1 if backbone is None else backbone.active


def _draws(fit: Fit, runs: Runs, noise: float, random: np.random.Generator) -> Floats:
    """(k, p) coefficients that runs with other noise would have given."""
    backbone = _backbone(fit)
    if backbone is None:
        return np.empty((0, 0))
    if isinstance(fit, ResidualFit):
        # What the process explains is no noise, but the terms alone miss it all the same.
        noise = float(np.sqrt(fit.noise * (1.0 + fit.shape.ratio)))
    A = backbone.features(runs.points)
    center = np.maximum(A @ backbone.coef, backbone.least)
    sizes = center * noise if backbone.relative else np.full(len(center), noise)
    weights = 1.0 / center if backbone.relative else np.ones(len(center))
    weighted = A * weights[:, None]
    drawn = center + random.standard_normal((DRAWS, len(center))) * sizes
    return np.array([solve(weighted, y * weights) for y in drawn])


def _deviation(fit: Fit, points: Points, draws: Floats, noise: float, relative: bool) -> Floats:
    predicted = fit.predict(points)
    own = np.full(len(points), noise) if relative else noise / predicted
    squared = own**2
    backbone = _backbone(fit)
    if backbone is not None and len(draws):
        center = backbone.predict(points)
        drawn = np.maximum(backbone.features(points) @ draws.T, 0.05 * center[:, None])
        uncertain = np.mean(np.log(drawn / center[:, None]) ** 2, axis=1)
        if isinstance(fit, ResidualFit):
            far = fit.variance(points)
            prior = max(fit.noise * fit.shape.ratio, LEAST**2)
            squared = squared + far + uncertain * np.minimum(far / prior, 1.0)
        elif isinstance(fit, ErnestFit):
            squared = squared + uncertain
        else:
            squared = squared + np.where(predicted == center, uncertain, 0.0)
    return np.maximum(np.sqrt(squared), LEAST)
