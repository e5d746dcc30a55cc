"""Cross-validation of scale models. Whole configurations are left out, never single repeats, whose
time would be known from the other repeats."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from kongming.arrays import Floats
from kongming.scale.points import Integers, Points, Runs


class Fit(Protocol):
    """A fitted model of any kind."""

    @property
    def kind(self) -> str: ...

    def predict(self, points: Points) -> Floats:
        """(n,) seconds per iteration, above 0."""

    def document(self) -> dict[str, Any]:
        """Return the model as JSON types."""


HUBER = 2.5
OF_NORMAL = 0.97757
"""Mean of the squares of normal deviations that count as ``HUBER`` at most."""

SCALE_ROUNDS = 200

EQUAL = 1e-6
"""Repeats differ by less than this share of the plain scale only where rounding makes them."""

ASSUMED, ASSUMED_COUNT = 0.1, 4
"""Noise (of logs) of runs that tell nothing of it, and the number of errors on left-out
configurations that it weighs as much as where no run is repeated. With as many degrees of freedom
repeats alone tell the noise: a single pair may be near by chance."""

Fitter = Callable[[Runs], Fit]


@dataclass(frozen=True, slots=True)
class Scores:
    """Errors of left-out configurations in percent of the measured time; ``rss`` in seconds²."""

    mean_pct: float
    median_pct: float
    max_pct: float
    rss: float

    def document(self) -> Mapping[str, float]:
        return {
            "mean_pct": self.mean_pct,
            "median_pct": self.median_pct,
            "max_pct": self.max_pct,
            "rss": self.rss,
        }


def folds_of(count: int, most: int) -> list[list[int]]:
    """Folds of configurations: each alone, or ``most`` folds drawn at random (always the same) if
    there are more than that. Every ``most``-th of a sorted grid would be of one scale."""
    if count <= most:
        return [[i] for i in range(count)]
    order = np.random.default_rng(0).permutation(count)
    return [sorted(order[start::most].tolist()) for start in range(most)]


def held_out(runs: Runs, fitter: Fitter, folds: Sequence[Sequence[int]]) -> Floats:
    """(count,) predicted seconds per iteration of each configuration when it is left out."""
    predicted = np.empty(runs.count)
    points = runs.configurations
    for fold in folds:
        index = np.asarray(fold, dtype=np.intp)
        predicted[index] = fitter(runs.without(index)).predict(points.take(index))
    return predicted


def largest_out(runs: Runs, *, most: int = 3) -> list[tuple[Runs, Runs]]:
    """(training, left out) with the largest machine count left out, then the two largest, ...

    The training runs have at least two machine counts and three configurations.
    """
    return _largest_values_out(runs, runs.points.machines, most)


def largest_scale_out(runs: Runs, *, most: int = 2) -> list[tuple[Runs, Runs]]:
    """(training, left out) with the largest scale left out, then the two largest, ...

    The training runs have at least two scales and three configurations.
    """
    return _largest_values_out(runs, runs.points.scale, most)


def _largest_values_out(runs: Runs, values: Floats, most: int) -> list[tuple[Runs, Runs]]:
    """(training, left out) by one quantity of the runs, ``values`` (n,)."""
    distinct = np.unique(values)
    parts = []
    for left_out in range(1, most + 1):
        if len(distinct) - left_out < 2:
            break
        small = values <= distinct[-left_out - 1]
        training = runs.take(small)
        if training.count >= 3:
            parts.append((training, runs.take(~small)))
    return parts


def log_errors(predicted: Floats, runs: Runs) -> Floats:
    """(count,) log of predicted over typical."""
    return np.asarray(np.log(predicted / runs.typical), dtype=np.float64)


def score(predicted: Floats, runs: Runs, order: Integers | None = None) -> Scores:
    """Score ``predicted`` (count,) against the typical times, both in this order of the
    configurations (None: their own)."""
    typical = runs.typical if order is None else runs.typical[order]
    error = 100.0 * np.abs(predicted / typical - 1.0)
    return Scores(
        mean_pct=float(error.mean()),
        median_pct=float(np.median(error)),
        max_pct=float(error.max()),
        rss=float(np.sum((predicted - typical) ** 2)),
    )


def repeats_show_noise(runs: Runs) -> bool:
    """Tell whether any configuration was run more than once."""
    return len(runs) > runs.count


def repeats_tell_noise(runs: Runs) -> bool:
    """Tell whether there are so many repeats that nothing else is asked for the noise."""
    return len(runs) - runs.count >= ASSUMED_COUNT


def repeat_noise(runs: Runs) -> float:
    """Standard deviation of the logs of repeats around their configurations' typical time; 0
    without repeats."""
    if not repeats_show_noise(runs):
        return 0.0
    within = np.log(runs.unit_seconds) - np.log(runs.typical)[runs.owner]
    squared = within[runs.repeats[runs.owner] > 1.0] ** 2
    return _scale(squared, float(np.sum(runs.repeats - 1.0)))


def run_noise(runs: Runs, residuals: Floats) -> float:
    """Standard deviation of the log of a run's time: that of repeats. Without repeats it is the
    scale of ``residuals`` (n,), the errors (in logs) on left-out configurations: they contain the
    noise of a run, and that it is smaller is not known. Few repeats are pooled with it: it has the
    degrees of freedom that they lack."""
    if repeats_tell_noise(runs):
        return repeat_noise(runs)
    errors = np.append(residuals, np.full(ASSUMED_COUNT, ASSUMED))
    assumed = _scale(errors**2, float(len(errors)))
    share = (len(runs) - runs.count) / ASSUMED_COUNT
    return float(np.sqrt(share * repeat_noise(runs) ** 2 + (1.0 - share) * assumed**2))


def _scale(squared: Floats, freedom: float) -> float:
    """Huber's scale (proposal 2) of deviations, ``squared`` (n,), with so many degrees of freedom:
    a deviation counts as at most ``HUBER`` scales. Where outliers are so frequent that nothing
    tells them from noise it is the plain one, and where most deviations are 0 too: with the others
    limited, the only scale would be 0."""
    scale = plain = np.sum(squared) / freedom
    different = np.count_nonzero(squared > EQUAL**2 * plain)
    if different * HUBER**2 <= OF_NORMAL * freedom:
        return float(np.sqrt(plain))
    for _ in range(SCALE_ROUNDS):
        limited = np.sum(np.minimum(squared, HUBER**2 * scale)) / (OF_NORMAL * freedom)
        if limited >= scale * (1.0 - 1e-9):
            break
        scale = limited
    return float(np.sqrt(scale))


def noise_floor_pct(runs: Runs) -> float | None:
    """Mean error that a perfect model would have on single runs, estimated from the repeats.

    None without repeats. The pooled standard deviation of the logs, times the mean absolute value
    of a standard normal, which makes it comparable to a mean absolute error.
    """
    if not repeats_show_noise(runs):
        return None
    return 100.0 * repeat_noise(runs) * float(np.sqrt(2.0 / np.pi))


def noise_floor_of_means_pct(runs: Runs) -> float | None:
    """Mean error that a perfect model would have on typical times, which are means of repeats, as
    all reported errors are: the floor of single runs over the square root of the repeats."""
    floor = noise_floor_pct(runs)
    return None if floor is None else floor * float(np.mean(1.0 / np.sqrt(runs.repeats)))
