"""Uncertainty of a prediction: noise, uncertainty of the coefficients, and calibration factors.

The noise and a parametric bootstrap of the coefficients give a standard deviation at any point,
which grows with the distance from the runs. Cross-validation over configurations, and over the
largest machine counts, calibrates it by a factor. The coverage is measured in the same way.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import cycle
from typing import Any

import numpy as np
from scipy.special import stdtr, stdtrit

from kongming.arrays import Floats
from kongming.scale.fit.backbone import backbone_of
from kongming.scale.fit.ernest import ErnestFit, solve, solve_each, solver_of, told_apart
from kongming.scale.fit.nearest import NearestFit
from kongming.scale.fit.residuals import ResidualFit
from kongming.scale.fit.spark_replay import ReplayFit
from kongming.scale.fit.validation import (
    ASSUMED,
    Fit,
    Fitter,
    folds_of,
    largest_out,
    largest_scale_out,
)
from kongming.scale.points import Points, Runs

DRAWS = 60
CALIBRATED_AT = 0.9
LEAST, MOST = 1e-9, 1.5
"""Lower and upper bound of a standard deviation (of a log), as of a stack's forms."""

FREEDOM_LEAST = 3.0
MANY = 20
"""Minimum number of left-out runs for calibrating the quantile itself instead of the median."""

WIDEST = 8.0
"""Upper bound of half an interval's width in logs, which keeps its ends finite."""


@dataclass(frozen=True, eq=False, slots=True)
class Spread:
    """``draws`` (k, p) bootstrapped coefficients of Ernest's terms; ``noise`` in seconds, or in
    logs if ``relative``; ``inside`` and ``outside``: calibration factors of the deviation within
    and beyond the trained ranges; ``freedom``: degrees of freedom of Student's t; ``coverage`` at
    0.9 as measured over ``covered`` left-out runs, None if there were too few."""

    draws: Floats
    noise: float
    relative: bool
    inside: float
    outside: float
    freedom: float
    coverage: float | None
    covered: int

    def deviation(self, fit: Fit, points: Points, *, beyond: bool) -> Floats:
        """(n,) standard deviation of the log of the time, of ``MOST`` at most."""
        own = _deviation(fit, points, self.draws, self.noise, self.relative)
        return np.minimum(own * (self.outside if beyond else self.inside), MOST)

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


def interval_factor(deviation: float, freedom: float, level: float) -> float:
    """Return the upper end of an interval over the median, and the median over the lower end, for
    the ``deviation`` of the log of a time that follows Student's t."""
    return float(np.exp(min(float(stdtrit(freedom, 0.5 + level / 2)) * deviation, WIDEST)))


def probability_within(deviation: float, freedom: float, log_ratio: float) -> float:
    """Return the probability that such a time over its median is at most exp(``log_ratio``)."""
    return float(stdtr(freedom, log_ratio / max(deviation, LEAST)))


def measure_spread(runs: Runs, fit: Fit, fitter: Fitter, *, seed: int = 0) -> Spread:
    """Measure the spread around a fit; ``fitter`` fits the training runs of each fold."""
    random = np.random.default_rng(seed)
    noise, relative = _noise(fit, runs)
    draws = _draws(fit, runs, noise, random)
    # One degree of freedom says so little of the noise that no interval would have an end.
    freedom = float(np.clip(runs.count - _active(fit), FREEDOM_LEAST, 100.0))

    def least(points: Points) -> Floats:
        """Return the noise of the fit to all runs: what a factor will be applied to is no less."""
        return np.full(len(points), noise) if relative else noise / fit.predict(points)

    inside = _standardised(
        [
            (runs.without(fold), runs.within(fold))
            for fold in folds_of(runs.count, 40)
            if runs.count > 2
        ],
        fitter,
        random,
        least,
    )
    outside = [
        _standardised([part], fitter, random, least)
        for part in (*largest_out(runs), *largest_scale_out(runs))
    ]
    wide = _widening(inside, freedom)
    coverage = None
    if len(inside) >= 5:
        limit = float(stdtrit(freedom, 0.5 + CALIBRATED_AT / 2))
        others = [np.delete(inside, i) for i in range(len(inside))]
        coverage = float(
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
        coverage=coverage,
        covered=len(inside),
    )


def _standardised(
    parts: list[tuple[Runs, Runs]],
    fitter: Fitter,
    random: np.random.Generator,
    least: Callable[[Points], Floats],
) -> Floats:
    """Absolute log errors of single left-out runs over their predicted deviation, which is
    ``least`` or more: few runs may be near their fit by chance."""
    standardised = []
    for training, left_out in parts:
        fit = fitter(training)
        noise, relative = _noise(fit, training)
        draws = _draws(fit, training, noise, random)
        error = np.abs(np.log(left_out.unit_seconds / fit.predict(left_out.points)))
        own = _deviation(fit, left_out.points, draws, noise, relative)
        standardised.append(error / np.maximum(own, least(left_out.points)))
    return np.concatenate(standardised) if standardised else np.empty(0)


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
    """Calibration factor from the worst part. The errors within one part are correlated, as they
    come from the same misfit, so each part is one observation, and there are few parts."""
    sizes = [float(np.sqrt(np.mean(part**2))) for part in parts if len(part)]
    return min(max(sizes, default=1.0), 10.0)


def _noise(fit: Fit, runs: Runs) -> tuple[float, bool]:
    """Standard deviation of single runs around the fit, and whether it is of logs."""
    predicted = fit.predict(runs.points)
    freedom = max(len(runs) - _active(fit), 1)
    # As many coefficients as runs leave nothing over, whatever the noise is.
    least = LEAST if len(runs) > _active(fit) else ASSUMED
    if isinstance(fit, ErnestFit) and not fit.relative:
        size = float(np.sqrt(np.sum((runs.unit_seconds - predicted) ** 2) / freedom))
        return max(size, least * float(runs.unit_seconds.mean())), False
    if isinstance(fit, ResidualFit):
        return max(float(np.sqrt(fit.noise)), LEAST), True
    if isinstance(fit, NearestFit):
        # It reproduces every training run, so only leave-one-out errors are informative.
        near = [float(np.log(runs.typical[i] / _nearest_other(runs, i))) for i in range(runs.count)]
        return max(float(np.sqrt(np.mean(np.square(near)))), LEAST), True
    logs = np.log(runs.unit_seconds / predicted)
    return max(float(np.sqrt(np.sum(logs**2) / freedom)), least), True


def _nearest_other(runs: Runs, own: int) -> float:
    points = runs.configurations
    steps = np.abs(np.log(points.machines / points.machines[own]))
    steps = steps + np.abs(np.log(points.scale / points.scale[own]))
    steps[own] = np.inf
    return float(runs.typical[int(np.argmin(np.round(steps, 9)))])


def _active(fit: Fit) -> int:
    backbone = backbone_of(fit)
    return 1 if backbone is None else backbone.active


def _draws(fit: Fit, runs: Runs, noise: float, random: np.random.Generator) -> Floats:
    """(k, p) coefficients of a parametric bootstrap."""
    backbone = backbone_of(fit)
    if backbone is None:
        return np.empty((0, 0))
    if isinstance(fit, ResidualFit):
        # The process explains part of the residuals, but for the terms alone they are noise.
        noise = float(np.sqrt(fit.noise * (1.0 + fit.shape.ratio)))
    A = told_apart(backbone.features(runs.points))
    center = np.maximum(A @ backbone.coef, backbone.least)
    sizes = center * noise if backbone.relative else np.full(len(center), noise)
    weights = 1.0 / center if backbone.relative else np.ones(len(center))
    weighted = A * weights[:, None]
    drawn = center + random.standard_normal((DRAWS, len(center))) * sizes
    solver = solver_of(backbone.cliff)
    if solver is solve:
        return solve_each(weighted, drawn * weights)
    # Where the solver prefers the earlier of columns that fit equally well, the later ones predict
    # other times, which no run excludes.
    return np.array(
        [solver(weighted[:, ::step], y * weights)[::step] for y, step in zip(drawn, cycle((1, -1)))]
    )


def _deviation(fit: Fit, points: Points, draws: Floats, noise: float, relative: bool) -> Floats:
    if isinstance(fit, ReplayFit):
        return np.maximum(fit.deviation(points), LEAST)
    predicted = fit.predict(points)
    own = np.full(len(points), noise) if relative else noise / predicted
    squared = own**2
    backbone = backbone_of(fit)
    if backbone is not None and len(draws):
        center = backbone.predict(points)
        drawn = np.maximum(backbone.features(points) @ draws.T, 1e-9 * center[:, None])
        uncertain = np.mean(np.clip(np.log(drawn / center[:, None]), -MOST, MOST) ** 2, axis=1)
        if isinstance(fit, ResidualFit):
            far = fit.variance(points)
            prior = max(fit.noise * fit.shape.ratio, LEAST**2)
            squared = squared + far + uncertain * np.minimum(far / prior, 1.0)
        elif isinstance(fit, ErnestFit):
            squared = squared + uncertain
        else:
            squared = squared + np.where(predicted == center, uncertain, 0.0)
    return np.maximum(np.sqrt(squared), LEAST)
