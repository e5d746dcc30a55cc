"""What one series does over time: follow the time of day, drift, or go to another level.

Each of them looks like the others to a test that knows one only: a slope makes change points, a
step makes a slope. So the rhythm of the day is taken out first, and a slope and steps that are both
there compete (Schwarz's criterion on what they leave).
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from math import log

import numpy as np

from kongming.audit.changes import Changes, change_points
from kongming.audit.intervals import inflation
from kongming.audit.trends import Drift, TimeOfDay, drift, logs, time_of_day
from kongming.dataset import Floats

__all__ = ["Movement", "movement", "stretches"]

TAKEN_OUT = 0.01
"""A rhythm of the day with a p below this is taken out before the rest is looked at."""


@dataclass(frozen=True, slots=True)
class Movement:
    """Each None where the series is too short for it."""

    time_of_day: TimeOfDay | None
    drift: Drift | None
    changes: Changes | None


def movement(seconds: Floats, values: Floats) -> Movement:
    """Of readings above 0 in order of time."""
    y = logs(values)
    rhythm = time_of_day(seconds, y)
    rest = y - rhythm.fitted if rhythm is not None and rhythm.p < TAKEN_OUT else y
    slope, steps = drift(seconds, rest), change_points(rest)
    if slope is None or steps is None or not steps.at:
        return Movement(rhythm, slope, steps)
    flat = _levels(rest, steps)
    # What one of them leaves out is autocorrelated: the better one says how many readings count.
    taus = inflation(np.stack((rest - slope.fitted, rest - flat)))
    size = len(rest) / float(taus.min())
    line = _score(rest - slope.fitted, 2, size)
    if slope.p < 0.05 and line <= _score(rest - flat, 2 * len(steps.at) + 1, size):
        steps = change_points(rest - slope.fitted)
        if steps is not None and steps.at:
            flat = _levels(rest - slope.fitted, steps)
            slope = drift(seconds, rest - flat)
    else:
        slope = drift(seconds, rest - flat)
    return Movement(rhythm, slope, steps)


def stretches(n: int, changes: Changes) -> list[tuple[int, int]]:
    """Begin and end of what lies between the changes."""
    edges = [0, *changes.at, n]
    return list(itertools.pairwise(edges))


def _levels(y: Floats, changes: Changes) -> Floats:
    made = np.empty_like(y)
    for begin, end in stretches(len(y), changes):
        made[begin:end] = y[begin:end].mean()
    return made


def _score(rest: Floats, parameters: int, size: float) -> float:
    return size * log(max(float(rest.var()), 1e-300)) + parameters * log(max(size, 2.0))
