"""Places whose newest fingerprint is stale, by the median of their history."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from kongming.arrays import Floats
from kongming.engine import awake_shares, scoring
from kongming.engine.columns import fitted, fitted_rows
from kongming.engine.ranking.query import Query, Reading
from kongming.engine.residents import Company
from kongming.engine.score_matrix import carried
from kongming.engine.slots import ANY_SUITE
from kongming.engine.state import FleetState


def from_history(
    fleet: FleetState, query: Query, stale: NDArray[np.intp], log_slowdown: Floats
) -> None:
    """Replace ``log_slowdown`` (slots,) of the ``stale`` places by what the medians of their
    histories say, and note these in ``query.history``."""
    slots = fleet.slots
    places, medians = [], []
    each_met, each_awake = [], []
    for slot in stale.tolist():
        median = slots.median(slot)
        if median is not None:
            # What residents meet is worked out again for the few places that are chosen.
            company = _company(fleet, slot, median)
            places.append(slot)
            medians.append(median)
            each_met.append(company.met)
            each_awake.append(company.awake)
    if not places:
        return
    chosen = np.array(places, dtype=np.intp)
    met, awake = np.array(each_met), np.array(each_awake)
    slowed = met - slots.idle[chosen]
    if query.model is None:
        log_slowdown[chosen] = np.nanmean(slowed, axis=1)
        for place, logs, median in zip(places, slowed, medians, strict=True):
            query.history[place] = Reading(logs, median)
        return
    own = fleet.own_node(query.model)
    counted = carried(chosen, slots, own)
    awake = awake[:, awake_shares.counted(query.model.file.placement)]
    scores = scoring.score(query.model, met, slowed, counted, awake)
    # Times of another node mean nothing to the model unless they are slowdowns, nor do those of
    # other surrogates.
    known = counted | (slots.node[chosen] == own)
    known &= np.isin(slots.suite[chosen], (query.model.suite, ANY_SUITE))
    log_slowdown[chosen] = np.where(known, scores.log_slowdown, math.nan)
    for i, place in enumerate(places):
        query.history[place] = Reading(
            slowed[i],
            medians[i],
            float(scores.error[i]),
            bool(scores.outside[i]),
            float(scores.limit[i]),
            bool(scores.at_least[i]),
            int(scores.variant[i]),
            bool(scores.filled[i]),
        )


def residents_meet(
    fleet: FleetState, query: Query, places: list[int]
) -> tuple[Floats, Floats, NDArray[np.bool_]]:
    """Return what the residents of these places meet, (n, C), for which share of time others keep
    a CPU awake, (n,), and of which of them, (n,), that is by the median of the place's history."""
    table = fleet.table
    width = min(len(fleet.columns), fleet.slots.width)
    met, awake = [], []
    usual: list[bool] = []
    for place in places:
        rows = table.rows(place)
        reading = query.history.get(place)
        if reading is None:
            met.append(fitted_rows(table.met[rows, :width], width))
            awake.append(table.awake[rows])
        else:
            # Columns may have come since.
            company = _company(fleet, place, fitted(reading.median, fleet.slots.width))
            here = company.here
            met.append(fitted_rows(company.each[here, :width], width))
            awake.append(company.awake_for_those(here))
        usual += [reading is not None] * len(rows)
    return np.concatenate(met), np.concatenate(awake), np.array(usual, dtype=np.bool_)


def _company(fleet: FleetState, slot: int, median: Floats) -> Company:
    """Return who matters to a place, by the median of its history."""
    node_id = fleet.nodes.at(int(fleet.slots.node[slot])).facts.id
    return fleet.residents.company(fleet.slots, slot, node_id, fleet.catalog, fleet.columns, median)
