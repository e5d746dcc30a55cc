"""Movements of a series over time: a daily rhythm, a drift, or changes of its level.

A test of one of them responds to the others as well: a slope makes change points, a step makes a
slope. So the daily rhythm is subtracted first, and where both a slope and steps fit, the one with
the better score is taken (Schwarz's criterion on the residuals).
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from math import log

import numpy as np

from kongming.arrays import Floats
from kongming.audit.analysis.multiple import benjamini_hochberg
from kongming.audit.analysis.quantile_intervals import inflation
from kongming.audit.analysis.series import Ints, Row, Series, iso
from kongming.audit.analysis.settings import Settings
from kongming.audit.analysis.trends import (
    Changes,
    Drift,
    TimeOfDay,
    change_points,
    drift,
    logs,
    time_of_day,
)

RHYTHM_P = 0.01
"""A daily rhythm with a p-value below this is subtracted before the other tests."""


@dataclass(frozen=True, slots=True)
class Movement:
    """The movements of one series; None where it is too short for the test."""

    time_of_day: TimeOfDay | None
    drift: Drift | None
    changes: Changes | None


Movements = Mapping[tuple[int, int], Movement]
"""By name and machine."""


def movements_of(series: Series) -> Movements:
    """The movements of all programs and surrogates whose readings are above 0."""
    return {
        key: movement(series.seconds[where], series.value[where], series.steps.session[where])
        for key, where in series.slices.items()
        if series.names[key[0]].timed and series.value[where].min() > 0.0
    }


def movement(seconds: Floats, values: Floats, recording: Ints) -> Movement:
    """Analyse readings above 0 in order of time; ``recording`` is the number of that of each."""
    y = logs(values)
    rhythm = time_of_day(seconds, y)
    rest = y - rhythm.fitted if rhythm is not None and rhythm.p < RHYTHM_P else y
    slope, steps = drift(seconds, rest, recording), change_points(rest)
    if slope is None or steps is None or not steps.at:
        return Movement(rhythm, slope, steps)
    flat = _levels(rest, steps)
    # The residuals of the wrong one are autocorrelated: the better one gives the effective size.
    taus = inflation(np.stack((rest - slope.fitted, rest - flat)))
    size = len(rest) / float(taus.min())
    line = _score(rest - slope.fitted, 1 + slope.levels, size)
    if slope.p < 0.05 and line <= _score(rest - flat, 2 * len(steps.at) + 1, size):
        # What recordings differ by is a change, and no part of the slope within them.
        steps = change_points(rest - slope.trend)
        if steps is not None and steps.at:
            flat = _levels(rest - slope.trend, steps)
            slope = drift(seconds, rest - flat, recording)
    else:
        slope = drift(seconds, rest - flat, recording)
    return Movement(rhythm, slope, steps)


def time_of_day_rows(series: Series, movements: Movements, settings: Settings) -> list[Row]:
    """One row a series that is long enough, with false discoveries controlled."""
    tests = {k: m.time_of_day for k, m in movements.items() if m.time_of_day is not None}
    adjusted = benjamini_hochberg([test.p for test in tests.values()])
    return [
        {
            **series.machine_columns(*key),
            "days": test.days,
            "swing_pct": 100.0 * test.swing,
            # A rate is highest where the program is fastest.
            "slowest_hour_utc": test.peak_hour
            if series.names[key[0]].lower_is_better
            else (test.peak_hour + 12.0) % 24.0,
            "p": test.p,
            "adjusted_p": p,
            "claimed": bool(p <= settings.alpha),
        }
        for (key, test), p in zip(tests.items(), adjusted, strict=True)
    ]


def drift_rows(series: Series, movements: Movements, settings: Settings) -> list[Row]:
    """One row a series that is long enough, with false discoveries controlled."""
    tests = {key: m.drift for key, m in movements.items() if m.drift is not None}
    adjusted = benjamini_hochberg([test.p for test in tests.values()])
    return [
        {
            **series.machine_columns(*key),
            "change_pct": 100.0 * test.change,
            "hours": test.span_s / 3600.0,
            "per_day_pct": 100.0 * test.per_day,
            "p": test.p,
            "adjusted_p": p,
            "claimed": bool(p <= settings.alpha),
        }
        for (key, test), p in zip(tests.items(), adjusted, strict=True)
    ]


def change_rows(series: Series, movements: Movements, settings: Settings) -> list[Row]:
    """One row a change, of the series that changed with false discoveries controlled."""
    tests = {key: m.changes for key, m in movements.items() if m.changes is not None}
    adjusted = benjamini_hochberg([test.first_p for test in tests.values()])
    rows = []
    for (key, changes), p in zip(tests.items(), adjusted, strict=True):
        if p > settings.alpha:
            continue
        where = series.slices[key]
        values, seconds = series.value[where], series.seconds[where]
        levels = [float(np.median(values[a:b])) for a, b in _segments(len(values), changes)]
        rows += [
            {
                **series.machine_columns(*key),
                "at": iso(float(seconds[at])),
                "before": before,
                "after": after,
                "change_pct": 100.0 * (after / before - 1.0),
                "p": own_p,
                "series_adjusted_p": p,
            }
            for at, own_p, (before, after) in zip(
                changes.at, changes.p, itertools.pairwise(levels), strict=True
            )
        ]
    return rows


def _levels(y: Floats, changes: Changes) -> Floats:
    fitted = np.empty_like(y)
    for begin, end in _segments(len(y), changes):
        fitted[begin:end] = y[begin:end].mean()
    return fitted


def _segments(n: int, changes: Changes) -> list[tuple[int, int]]:
    """Begin and end of the segments between changes."""
    return list(itertools.pairwise([0, *changes.at, n]))


def _score(rest: Floats, parameters: int, size: float) -> float:
    return size * log(max(float(rest.var()), 1e-300)) + parameters * log(max(size, 2.0))
