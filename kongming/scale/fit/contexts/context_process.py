"""A Gaussian process over contexts and machine counts, on what is left of Ernest's terms.

The log of the time is a sum of parts, each with a normal prior (Rasmussen and Williams 2006,
chapter 2): effects of the columns that are linear, and of any smooth shape; a curve over the
machines that all contexts share, and deviations from it that near contexts share; and of each
context alone, a level and a slope over the machines, which its own runs tell. Which parts matter is
decided by the marginal likelihood. Leaving out a configuration, or a whole context, has a closed
form (section 5.4.2 there), with the sizes of the parts kept.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.linalg import cho_factor, cho_solve
from scipy.optimize import minimize

from kongming.arrays import Floats
from kongming.scale.points import Integers

PARTS = ("linear", "smooth", "machines", "together", "slopes", "level", "own_slope")
START = (0.7, 0.2, 0.1, 0.15, 0.1, 0.1, 0.05, 0.06, 0.8, 1.5)
"""Assumed sizes (in logs of the time) of the parts and of the noise, and lengths over the machines
(in logs) and over the columns (in standard deviations)."""

LOOSE = 1.0
"""Standard deviation of the logs of these around what is assumed."""

LEVEL = 10.0
"""Standard deviation of the overall level, which is thereby free."""

FOR_SIZES = 120
"""Maximum number of points from which the sizes are estimated."""

TOGETHER = 4
"""Points of a context that are taken together for that: they tell its level from the noise."""

OUTLIER, AFTER = 3.0, 2.0
"""A point that is so many deviations from what the others predict has its noise raised, until it is
this many."""


@dataclass(frozen=True, eq=False, slots=True)
class Inputs:
    """Points of the process: ``machines`` (n,) logs, ``numbers`` (n, p) encoded columns, ``owner``
    (n,) the number of each point's context, -1 for one without runs."""

    machines: Floats
    numbers: Floats
    owner: Integers

    def __len__(self) -> int:
        return len(self.machines)

    def take(self, index: Any) -> Inputs:
        return Inputs(self.machines[index], self.numbers[index], self.owner[index])


@dataclass(frozen=True, eq=False, slots=True)
class Process:
    """``inputs`` (n) and ``values`` (n,) of the runs, ``noise`` (n,) of each in units of one run's
    variance, ``extra`` (n,) variance of outliers; ``sizes`` as in ``START``; ``inverse`` (n, n) of
    the covariance, ``dual`` (n,)."""

    inputs: Inputs
    values: Floats
    noise: Floats
    extra: Floats
    sizes: Floats
    inverse: Floats
    dual: Floats

    @classmethod
    def of(
        cls, inputs: Inputs, values: Floats, noise: Floats, extra: Floats, sizes: Floats
    ) -> Process:
        covariance = _covariance(inputs, inputs, sizes)
        covariance.flat[:: len(values) + 1] += sizes[7] ** 2 * noise + extra
        inverse = cho_solve(cho_factor(covariance, lower=True), np.eye(len(values)))
        return cls(inputs, values, noise, extra, sizes, inverse, inverse @ values)

    def take(self, index: Any) -> Process:
        """Return the same process over some of its points."""
        return Process.of(
            self.inputs.take(index),
            self.values[index],
            self.noise[index],
            self.extra[index],
            self.sizes,
        )

    def document(self) -> dict[str, Any]:
        """Return it as JSON types, without its inputs."""
        return {
            "values": self.values.tolist(),
            "noise": self.noise.tolist(),
            "extra": self.extra.tolist(),
            "sizes": self.sizes.tolist(),
        }

    def mean(self, at: Inputs) -> Floats:
        """(m,) predicted values."""
        return np.asarray(_covariance(at, self.inputs, self.sizes) @ self.dual)

    def mean_and_variance(self, at: Inputs) -> tuple[Floats, Floats]:
        """(m,) each: predicted values, and their variances without the noise of a run."""
        near = _covariance(at, self.inputs, self.sizes)
        prior = np.diag(_covariance(at, at, self.sizes))
        left = prior - np.sum(near @ self.inverse * near, axis=1)
        return np.asarray(near @ self.dual), np.maximum(left, 1e-12)

    def moved_by(self, at: Inputs, point: int) -> tuple[Floats, Floats]:
        """(m,) each: what one of the runs adds to predicted values, and takes from variances."""
        own = self.inverse[point, point]
        carried = _covariance(at, self.inputs, self.sizes) @ self.inverse[:, point] / own
        return np.asarray(carried * self.dual[point]), np.asarray(carried**2 * own)

    def posterior(self, at: Inputs) -> Floats:
        """(m, m) covariance of the values at these points, given the runs."""
        near = _covariance(at, self.inputs, self.sizes)
        return np.asarray(_covariance(at, at, self.sizes) - near @ self.inverse @ near.T)

    def left_out(self, folds: list[Integers]) -> tuple[Floats, Floats]:
        """(n,) residuals of the points when the fold of each is left out, and their variances, with
        the points' own noise."""
        residuals, variances = np.zeros(len(self.values)), np.ones(len(self.values))
        for fold in folds:
            residuals[fold], variances[fold] = self.left_out_fold(fold)
        return residuals, variances

    def left_out_each(self) -> tuple[Floats, Floats]:
        """Predict as ``left_out`` does, with each point left out alone."""
        variances = 1.0 / np.diag(self.inverse)
        return variances * self.dual, variances

    def left_out_fold(self, fold: Integers) -> tuple[Floats, Floats]:
        """The same of the points of one fold alone."""
        covariance = np.linalg.inv(self.inverse[np.ix_(fold, fold)])
        return np.asarray(covariance @ self.dual[fold]), np.asarray(np.diag(covariance))


def fit_process(inputs: Inputs, values: Floats, noise: Floats) -> Process:
    """Estimate the sizes of the parts, raise the noise of outliers, and estimate them again."""
    extra = np.zeros(len(values))
    some = thin(inputs, FOR_SIZES, together=TOGETHER)
    sizes = np.array(START)
    for _ in range(2):
        sizes = _sizes(inputs.take(some), values[some], noise[some], extra[some], sizes)
        process = Process.of(inputs, values, noise, extra, sizes)
        diagonal = np.diag(process.inverse)
        residual, variance = process.dual / diagonal, 1.0 / diagonal
        outlying = np.abs(residual) > OUTLIER * np.sqrt(variance)
        if not outlying.any():
            return process
        raised = np.maximum((residual / AFTER) ** 2 - variance, 0.0)
        extra = extra + np.where(outlying, raised, 0.0)
    return Process.of(inputs, values, noise, extra, sizes)


def thin(inputs: Inputs, most: int, *, together: int = 1) -> Integers:
    """Return the indices (in order) of at most so many points: of every context and every machine
    count ``together`` at random, then as many again. Every k-th would follow the table's order, in
    which machine counts alternate."""
    n = len(inputs)
    if n <= most:
        return np.arange(n)
    order = np.random.default_rng(0).permutation(n)
    counts = np.unique(inputs.machines, return_inverse=True)[1]
    turns = [_turns(each[order]) // together for each in (inputs.owner, counts)]
    contexts = np.random.default_rng(1).permutation(int(inputs.owner.max()) + 1)
    # Whole contexts are taken one after the other, in a random order.
    chosen = np.lexsort((contexts[inputs.owner[order]], np.minimum(*turns)))[:most]
    return np.sort(order[chosen])


def _turns(of: Integers) -> Integers:
    """(n,) how many of the same value come before each."""
    order = np.argsort(of, kind="stable")
    ordered = of[order]
    turns = np.empty(len(of), dtype=np.intp)
    turns[order] = np.arange(len(of)) - np.searchsorted(ordered, ordered)
    return turns


def _covariance(a: Inputs, b: Inputs, sizes: Floats) -> Floats:
    """(n, m)"""
    total = np.full((len(a), len(b)), LEVEL**2)
    for size, part in zip(sizes[:7], _parts(a, b, sizes[8], sizes[9]), strict=True):
        total += size**2 * part
    return total


def _parts(a: Inputs, b: Inputs, length: float, reach: float) -> list[Floats]:
    """Return the parts' (n, m) correlations, in the order of ``PARTS``."""
    linear = a.numbers @ b.numbers.T
    apart = squared_distances(a.numbers, b.numbers)
    steps = (a.machines[:, None] - b.machines[None, :]) ** 2
    near = np.exp(-0.5 * steps / length**2)
    alike = np.exp(-0.5 * apart / reach**2)
    slope = a.machines[:, None] * b.machines[None, :]
    same = ((a.owner[:, None] == b.owner[None, :]) & (a.owner[:, None] >= 0)).astype(np.float64)
    return [linear, alike, near, near * alike, slope * linear, same, slope * same]


def squared_distances(a: Floats, b: Floats) -> Floats:
    """(n, m) of places (n, p) from others (m, p)."""
    squares = np.sum(a**2, axis=1)[:, None] + np.sum(b**2, axis=1)[None, :] - 2.0 * a @ b.T
    return np.asarray(np.maximum(squares, 0.0))


def _sizes(inputs: Inputs, values: Floats, noise: Floats, extra: Floats, start: Floats) -> Floats:
    """Maximise the marginal likelihood times the prior of the sizes."""
    assumed = np.log(np.array(START))
    apart = squared_distances(inputs.numbers, inputs.numbers)
    steps = (inputs.machines[:, None] - inputs.machines[None, :]) ** 2
    n = len(values)

    def loss(logs: Floats) -> tuple[float, Floats]:
        sizes = np.exp(logs)
        parts = _parts(inputs, inputs, sizes[8], sizes[9])
        scaled = [size**2 * part for size, part in zip(sizes[:7], parts, strict=True)]
        covariance = LEVEL**2 + sum(scaled)
        covariance.flat[:: n + 1] += sizes[7] ** 2 * noise + extra + 1e-10
        try:
            factor = cho_factor(covariance, lower=True)
        except np.linalg.LinAlgError:
            return 1e12, np.zeros(len(logs))
        inverse = cho_solve(factor, np.eye(n))
        dual = inverse @ values
        value = 0.5 * values @ dual + float(np.sum(np.log(np.diag(factor[0]))))
        inner = inverse - np.outer(dual, dual)
        slopes = [float(np.sum(inner * part)) for part in scaled]
        slopes.append(sizes[7] ** 2 * float(np.sum(np.diag(inner) * noise)))
        slopes.append(0.5 * float(np.sum(inner * (scaled[2] + scaled[3]) * steps)) / sizes[8] ** 2)
        slopes.append(0.5 * float(np.sum(inner * (scaled[1] + scaled[3]) * apart)) / sizes[9] ** 2)
        away = (logs - assumed) / LOOSE
        return value + 0.5 * float(away @ away), np.array(slopes) + away / LOOSE

    solution = minimize(
        loss,
        np.log(start),
        jac=True,
        method="L-BFGS-B",
        bounds=[(low - 4.0, low + 3.0) for low in assumed],
        options={"maxiter": 60},
    )
    return np.asarray(np.exp(solution.x), dtype=np.float64)
