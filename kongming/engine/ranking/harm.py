"""Harm to residents: what a newcomer adds to their log slowdowns, estimated and exactly."""

from __future__ import annotations

import math

import numpy as np

from kongming.arrays import Floats
from kongming.engine.columns import fitted
from kongming.engine.ranking.history import residents_meet
from kongming.engine.ranking.query import Query, mean_log
from kongming.engine.state import FleetState
from kongming.steps import Steps

AT_ONCE = 128
"""Places that are worked out in full in one step: some 10 ms."""


def estimate(fleet: FleetState, query: Query) -> Floats:
    """Return, (rows of the matrix,), what the newcomer adds to the log slowdown of a resident by
    the resident's model."""
    added = fleet.harm.of(query.pressure.row).astype(np.float64)
    rows = fleet.matrix.done.shape[0]
    if len(added) < rows:
        general = mean_log(query.pressure.slowed)
        added = np.concatenate([added, np.full(rows - len(added), general)])
    return added


def exact(fleet: FleetState, query: Query, places: list[int]) -> Steps[list[tuple[float, float]]]:
    """Sum, in steps and for each place, what the newcomer adds to the residents' log slowdowns,
    and return the greatest log slowdown that a resident would have: infinite where there is a limit
    and that is a lower bound, or that of no model."""
    harm = []
    for start in range(0, len(places), AT_ONCE):
        if start:
            yield
        harm += _exact_at_once(fleet, query, places[start : start + AT_ONCE])
    return harm


def _exact_at_once(fleet: FleetState, query: Query, places: list[int]) -> list[tuple[float, float]]:
    table = fleet.table
    for place in places:
        if place in query.history:
            # Its residents are to be those of now, in the table as in what is worked out.
            fleet.company(place)
    rows = [row for place in places for row in table.rows(place)]
    by_place = [len(table.rows(place)) for place in places]
    if not rows:
        query.residents.update(dict.fromkeys(places, (0.0, False)))
        return [(0.0, 0.0)] * len(places)
    chosen = np.array(rows, dtype=np.intp)
    general = mean_log(fitted(query.pressure.slowed, fleet.slots.width))
    before = table.now[chosen]
    unknown = np.isnan(before)
    if unknown.any():
        before[unknown] = table.now[chosen[unknown]] = np.nan_to_num(
            fleet.resident_logs(chosen[unknown], None)[0]
        )
    met: Floats | None = None
    awake: Floats | None = None
    if any(place in query.history for place in places):
        met, awake, usual = residents_meet(fleet, query, places)
        if usual.any():
            its = fleet.resident_logs(chosen[usual], None, met[usual], awake[usual])[0]
            before[usual] = np.nan_to_num(its)
    then, least = fleet.resident_logs(chosen, query.pressure, met, awake)
    # Where no model says anything, one is slowed as its surrogates are on average.
    untold = np.isnan(then)
    added = np.where(untold, general, np.maximum(then - before, 0.0))
    after = np.where(untold, np.fmax(general, 0.0), then)
    least = least | untold
    limited = bool(query.request.resident_slowdown_limit)
    harm = []
    start = 0
    for place, count in zip(places, by_place, strict=True):
        end = start + count
        worst, open_ = float(after[start:end].max(initial=0.0)), bool(least[start:end].any())
        query.residents[place] = worst, open_
        # A least slowdown, or an estimate of one, does not show that a limit is kept.
        harm.append((float(added[start:end].sum()), math.inf if limited and open_ else worst))
        start = end
    return harm
