"""Refusals: the places that a ranking leaves out, and why."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from kongming.arrays import Floats
from kongming.engine.ranking import order
from kongming.engine.ranking.query import Query, log_limit
from kongming.engine.state import FleetState

_DOUBTFUL = 1.5
"""An estimate of a resident's log slowdown refuses a place only this far beyond the limit."""


def codes_of(
    fleet: FleetState,
    query: Query,
    candidates: NDArray[np.bool_],
    stale: NDArray[np.bool_],
    newcomer: Floats,
    harm: Floats,
) -> NDArray[np.int8]:
    """Return, (slots,), the code of the first reason for which each place is refused, 0 for none.

    ``stale`` and ``newcomer`` are (slots,), ``harm`` is the estimate of each row of the matrix.
    """
    slots, request = fleet.slots, query.request
    n = slots.count
    nodes = np.maximum(slots.node[:n], 0)
    codes = np.zeros(n, dtype=np.int8)
    silent = query.now - fleet.nodes.seen > fleet.settings.silent_after_s
    order.refuse(codes, fleet.nodes.suspect[nodes], "suspect")
    order.refuse(codes, silent[nodes], "silent")
    order.refuse(codes, ~slots.ready[:n], "no_fingerprint")
    if request.stale_policy == "refuse":
        order.refuse(codes, stale, "stale")
    order.refuse(codes, np.isnan(newcomer), "unpredictable")
    if request.memory_bytes:
        order.refuse(codes, fleet.nodes.memory[nodes] < request.memory_bytes, "memory")
    if request.slowdown_limit:
        limit = log_limit(request.slowdown_limit)
        beyond = (newcomer > limit) | _open_ended(fleet, query)
        order.refuse(codes, beyond, "slowdown_limit")
    if request.resident_slowdown_limit:
        # Worked out they are infinitely slow, which the estimate does not know.
        unknown = fleet.table.unmodelled(n)
        order.refuse(codes, unknown, "resident_slowdown_limit")
    if request.scaling is not None:
        refuse_by_estimate(fleet, query, codes, harm)
    return codes


def _open_ended(fleet: FleetState, query: Query) -> NDArray[np.bool_]:
    """Return, (slots,), whether the newcomer's predicted slowdown is a lower bound, which does not
    show that a limit is kept."""
    n = fleet.slots.count
    if query.model is None:
        return np.zeros(n, dtype=np.bool_)
    at_least = fleet.matrix.at_least[query.model.row, :n].copy()
    for place, reading in query.history.items():
        at_least[place] = reading.at_least
    return at_least


def refuse_by_estimate(
    fleet: FleetState,
    query: Query,
    codes: NDArray[np.int8],
    harm: Floats,
    sound: Sequence[int] = (),
) -> None:
    """Refuse by the estimate of harm, which is of the newest fingerprints, except places that are
    predicted from their history, and those that were worked out and are ``sound``."""
    if not query.request.resident_slowdown_limit:
        return
    limit = _DOUBTFUL * log_limit(query.request.resident_slowdown_limit)
    worst = fleet.table.greatest(len(codes), harm)
    where = worst > limit
    where[[*sound, *query.history]] = False
    order.refuse(codes, where, "resident_slowdown_limit")


def counted(
    count: int,
    codes: NDArray[np.int8],
    nodes: NDArray[np.int32],
    candidates: NDArray[np.bool_],
) -> dict[str, int]:
    """Return the number of refused nodes by reason, of ``count`` that were asked about."""
    refused = order.counted(codes, nodes, candidates)
    # A node of which nothing was ever read has no place that could be refused.
    heard = int(np.count_nonzero(np.bincount(nodes[candidates])))
    missing = count - heard
    if missing > 0:
        refused["no_fingerprint"] = refused.get("no_fingerprint", 0) + missing
    return refused
