"""How far a model is from what it has not seen: whole configurations are left out, never single
repeats of one, which would be told by the others."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from kongming.dataset import Floats
from kongming.scale.points import Points, Runs

__all__ = [
    "Fit",
    "Fitter",
    "Scores",
    "folds_of",
    "held_out",
    "largest_out",
    "largest_scale_out",
    "log_errors",
    "noise_floor_pct",
    "score",
]


class Fit(Protocol):
    """A fitted model, whatever its form."""

    @property
    def kind(self) -> str: ...

    def predict(self, points: Points) -> Floats:
        """(n,) seconds per iteration, above 0."""

    def document(self) -> dict[str, Any]:
        """Numbers and names alone, for a file."""


Fitter = Callable[[Runs], Fit]


@dataclass(frozen=True, slots=True)
class Scores:
    """Errors of left-out configurations in percent of what they took; ``rss`` in seconds²."""

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
    """Configurations to leave out together: each alone, or every ``most``-th where there are
    more than that."""
    parts = min(count, most)
    return [list(range(start, count, parts)) for start in range(parts)]


def held_out(runs: Runs, fitter: Fitter, folds: Sequence[Sequence[int]]) -> Floats:
    """(count,) seconds per iteration of each configuration, by a model that never saw it."""
    found = np.empty(runs.count)
    points = runs.configurations
    for fold in folds:
        index = np.asarray(fold, dtype=np.intp)
        found[index] = fitter(runs.without(index)).predict(points.take(index))
    return found


def largest_out(runs: Runs, *, most: int = 3) -> list[tuple[Runs, Runs]]:
    """(trained, left out): the largest machine count left out, then the two largest, ...

    What is left has two machine counts and three configurations at least.
    """
    counts = np.unique(runs.points.machines)
    found = []
    for left in range(1, most + 1):
        if len(counts) - left < 2:
            break
        small = runs.points.machines <= counts[-left - 1]
        trained = runs.take(small)
        if trained.count >= 3:
            found.append((trained, runs.take(~small)))
    return found


def largest_scale_out(runs: Runs, *, most: int = 2) -> list[tuple[Runs, Runs]]:
    """(trained, left out): the largest scale left out, then the two largest, ...

    What is left has two scales and three configurations at least.
    """
    scales = np.unique(runs.points.scale)
    found = []
    for left in range(1, most + 1):
        if len(scales) - left < 2:
            break
        little = runs.points.scale <= scales[-left - 1]
        trained = runs.take(little)
        if trained.count >= 3:
            found.append((trained, runs.take(~little)))
    return found


def log_errors(predicted: Floats, runs: Runs) -> Floats:
    """(count,) log of predicted over typical."""
    return np.asarray(np.log(predicted / runs.typical), dtype=np.float64)


def score(predicted: Floats, runs: Runs) -> Scores:
    """Of ``predicted`` (count,) beside the typical times."""
    error = 100.0 * np.abs(predicted / runs.typical - 1.0)
    return Scores(
        mean_pct=float(error.mean()),
        median_pct=float(np.median(error)),
        max_pct=float(error.max()),
        rss=float(np.sum((predicted - runs.typical) ** 2)),
    )


def noise_floor_pct(runs: Runs) -> float | None:
    """The mean error that even the true model would show at single runs, from the repeats.

    None without repeats. The pooled standard deviation of the logs, times the mean of a standard
    normal's absolute value, so that it stands beside a mean absolute error.
    """
    freedom = float(np.sum(runs.repeats - 1.0))
    if freedom < 1.0:
        return None
    within = np.log(runs.unit_seconds) - np.log(runs.typical)[runs.owner]
    return float(100.0 * np.sqrt(np.sum(within**2) / freedom) * np.sqrt(2.0 / np.pi))
