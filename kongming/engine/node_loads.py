"""Loads of all nodes, and what they do to each application, from arrays over all of them.

Unlike a ranking it works nothing out: it is as new as the last ``refresh`` of the engine.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from kongming.arrays import Floats
from kongming.engine.environment import ratio_of
from kongming.engine.state import FleetState
from kongming.records.node_load import RESOURCES, AppSlowdown, NodeLoad, Window
from kongming.steps import Steps

_AT_ONCE = 256
"""Slots whose history is read in one step."""

_NODES_AT_ONCE = 128
"""Nodes that are described in one step."""


def node_loads(
    fleet: FleetState, now: float, window_s: float = 0.0, most: int | None = None
) -> Steps[list[NodeLoad]]:
    """The first ``most`` nodes by name (all for None), named by id where several have one name, but
    the only one of them that is not silent; with ``window_s`` also from what was read in so many
    seconds.

    Of several last-level cache domains the worst counts. Nodes that are not in service, and
    fingerprints older than their time to live, have no slowdown.
    """
    slots = fleet.slots
    n = slots.count
    known = _known(fleet, now).tolist()
    taken_at = slots.taken_at[:n].tolist()
    places = _places(fleet)
    # Lists: to take numbers out of arrays one by one takes most of the time.
    slowdown = {"all": slots.general[:n].tolist()}
    means: dict[str, list[float]] = {}
    deviations: dict[str, list[float]] = {}
    for resource, its in places.items():
        slowdown[resource] = _means(slots.slowed[:n, its]).tolist()
        if window_s > 0.0:
            means[resource], deviations[resource] = [], []
            for start in range(0, n, _AT_ONCE):
                part = slice(start, min(start + _AT_ONCE, n))
                mean, deviation = _window(fleet, part, its, now - window_s)
                means[resource] += mean.tolist()
                deviations[resource] += deviation.tolist()
                yield
    views = sorted(fleet.nodes, key=lambda view: (view.facts.name, view.facts.id))
    # A machine that was installed again is known by its former id, too, which is silent.
    heard = {view.facts.id for view in views if fleet.nodes.is_heard(view, now)}
    nodes_of = Counter(view.facts.name for view in views)
    heard_of = Counter(view.facts.name for view in views if view.facts.id in heard)
    loads = []
    for number, view in enumerate(views[:most], 1):
        name, nodes = view.facts.name, heard_of if view.facts.id in heard else nodes_of
        its_slots = [slot for slot in view.slots.values() if slot < n]
        fresh = [slot for slot in its_slots if known[slot]]
        if fleet.nodes.state(view, now)[0] != "ready":
            fresh = []
        taken = [taken_at[slot] for slot in its_slots if not math.isnan(taken_at[slot])]
        loads.append(
            NodeLoad(
                view.facts.id,
                name if nodes[name] == 1 else view.facts.id,
                {
                    resource: ratio_of(logs[slot])
                    for resource, logs in slowdown.items()
                    if (slot := _worst(logs, fresh)) is not None
                },
                {
                    resource: Window(shares[slot], None if math.isnan(spread) else spread)
                    for resource, shares in means.items()
                    if (slot := _worst(shares, fresh)) is not None
                    for spread in (deviations[resource][slot],)
                },
                max(0.0, now - max(taken)) if taken else None,
                len(fleet.residents.active_on(view.facts.id)),
            )
        )
        if number % _NODES_AT_ONCE == 0:
            yield
    return loads


def app_slowdowns(fleet: FleetState, now: float, most: int) -> Steps[list[AppSlowdown]]:
    """Return slowdowns by application and placement, over the nodes in service with a fresh
    fingerprint. One that is predicted on no node is left out; there are at most ``most``, the first
    by name.
    """
    known = _known(fleet, now)
    serving = {v.number for v in fleet.nodes if fleet.nodes.state(v, now)[0] == "ready"}
    known &= np.isin(fleet.slots.node[: len(known)], list(serving))
    slowdowns = []
    for model in sorted(fleet.catalog.all_served(), key=lambda model: model.key)[:most]:
        row = fleet.matrix.log_slowdown[model.row : model.row + 1, : len(known)]
        logs = row[:, known[: row.shape[1]]]
        logs = logs[~np.isnan(logs)]
        if len(logs):
            numbers = (float(np.min(logs)), float(np.median(logs)), float(np.max(logs)))
            slowdowns.append(AppSlowdown(*model.key, *(ratio_of(number) for number in numbers)))
        yield
    return slowdowns


def _known(fleet: FleetState, now: float) -> NDArray[np.bool_]:
    slots = fleet.slots
    n = slots.count
    fresh = now - slots.taken_at[:n] <= slots.ttl_s[:n]
    return np.asarray(slots.ready[:n] & fresh & ~np.isnan(slots.general[:n]))


def _places(fleet: FleetState) -> dict[str, list[int]]:
    """The columns of each resource; one without any is not there."""
    width = min(len(fleet.columns), fleet.slots.width)
    families = [fleet.columns.family(place) for place in range(width)]
    places = {
        resource: [place for place, family in enumerate(families) if family in its]
        for resource, its in RESOURCES.items()
    }
    return {resource: its for resource, its in places.items() if its}


def _means(logs: Floats) -> Floats:
    """(..., C) -> (...) over the columns that are known; NaN without any."""
    known = ~np.isnan(logs)
    total = np.where(known, logs, 0.0).sum(axis=-1)
    count = known.sum(axis=-1)
    return np.asarray(np.where(count > 0, total / np.maximum(count, 1), math.nan))


def _window(
    fleet: FleetState, part: slice, places: list[int], since: float
) -> tuple[Floats, Floats]:
    """(n,) mean and standard deviation of the lost shares of readings taken after ``since``."""
    slots = fleet.slots
    logs = _means(slots.history[part][:, :, places] - slots.idle[part][:, None, places])
    logs = np.where(slots.history_at[part] >= since, logs, math.nan)
    lost = np.maximum(0.0, 1.0 - np.exp(-np.clip(logs, -50.0, 50.0)))
    mean = _means(lost)
    count = (~np.isnan(lost)).sum(axis=-1)
    squares = np.where(np.isnan(lost), 0.0, (lost - mean[:, None]) ** 2).sum(axis=-1)
    deviation = np.sqrt(squares / np.maximum(count - 1, 1))
    return mean, np.asarray(np.where(count > 1, deviation, math.nan))


def _worst(numbers: Sequence[float], slots: Sequence[int]) -> int | None:
    """The slot with the greatest number that is known."""
    known = [slot for slot in slots if not math.isnan(numbers[slot])]
    return max(known, key=lambda slot: numbers[slot]) if known else None
