"""Tables of what happens over time, and of what the order of measuring does."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from kongming.audit import ordering
from kongming.audit.movements import Movement, stretches
from kongming.audit.multiple import benjamini_hochberg
from kongming.audit.rows import Row, iso, of_series, where_of
from kongming.audit.series import Series

if TYPE_CHECKING:
    from kongming.audit.analysis import Settings

__all__ = ["changes_rows", "drift_rows", "order_rows", "time_of_day_rows"]

Moves = Mapping[tuple[int, int], Movement]


def time_of_day_rows(series: Series, moves: Moves, settings: Settings) -> list[Row]:
    own = {key: one.time_of_day for key, one in moves.items() if one.time_of_day is not None}
    adjusted = benjamini_hochberg([one.p for one in own.values()])
    return [
        {
            **of_series(series, key),
            "days": one.days,
            "swing_pct": 100.0 * one.swing,
            "slowest_hour_utc": one.peak_hour,
            "p": one.p,
            "adjusted_p": p,
            "claimed": bool(p <= 1.0 - settings.confidence),
        }
        for (key, one), p in zip(own.items(), adjusted, strict=True)
    ]


def drift_rows(series: Series, moves: Moves, settings: Settings) -> list[Row]:
    own = {key: one.drift for key, one in moves.items() if one.drift is not None}
    adjusted = benjamini_hochberg([one.p for one in own.values()])
    return [
        {
            **of_series(series, key),
            "change_pct": 100.0 * one.change,
            "per_day_pct": 100.0 * one.per_day,
            "p": one.p,
            "adjusted_p": p,
            "claimed": bool(p <= 1.0 - settings.confidence),
        }
        for (key, one), p in zip(own.items(), adjusted, strict=True)
    ]


def changes_rows(series: Series, moves: Moves, settings: Settings) -> list[Row]:
    """Of series that changed at all, with false alarms controlled; one row a change."""
    own = {key: one.changes for key, one in moves.items() if one.changes is not None}
    adjusted = benjamini_hochberg([one.first_p for one in own.values()])
    rows = []
    for (key, one), p in zip(own.items(), adjusted, strict=True):
        if p > 1.0 - settings.confidence:
            continue
        where = series.slices[key]
        values, seconds = series.value[where], series.seconds[where]
        parts = stretches(len(values), one)
        for k, at in enumerate(one.at):
            before = float(np.median(values[slice(*parts[k])]))
            after = float(np.median(values[slice(*parts[k + 1])]))
            rows.append(
                {
                    **of_series(series, key),
                    "at": iso(float(seconds[at])),
                    "before": before,
                    "after": after,
                    "change_pct": 100.0 * (after / before - 1.0),
                    "p": one.p[k],
                    "series_adjusted_p": p,
                }
            )
    return rows


def order_rows(series: Series, settings: Settings) -> Mapping[str, list[Row]]:
    places, predecessors = [], []
    for name in series.timed():
        for t in range(len(series.types)):
            y, rows = ordering.levelled(series, name, series.members(t))
            if not len(y):
                continue
            place = ordering.place_effect(y, series.steps.place[rows])
            if place is not None:
                places.append(
                    {
                        **where_of(series, name, t, None),
                        "n": place.n,
                        "rho": place.rho,
                        "first_pct": 100.0 * place.first,
                        "p": place.p,
                    }
                )
            after = ordering.predecessor_effect(
                y, series.steps.place[rows], series.steps.predecessor[rows]
            )
            if after is not None:
                predecessors.append(
                    {
                        **where_of(series, name, t, None),
                        "n": after.n,
                        "after": series.names[after.worst].name,
                        "effect_pct": 100.0 * after.ratio,
                        "after_p": after.worst_p,
                        "p": after.p,
                    }
                )
    alpha = 1.0 - settings.confidence
    for table in (places, predecessors):
        for row, p in zip(table, benjamini_hochberg([row["p"] for row in table]), strict=True):
            row["adjusted_p"] = p
            row["claimed"] = bool(p <= alpha)
    return {"place": places, "predecessor": predecessors}
