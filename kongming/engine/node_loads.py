"""How loaded all nodes are, and what that does to each application, from arrays over all of them.

Unlike a ranking it works nothing out: it is as new as the last ``refresh`` of the engine.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from kongming.arrays import Floats
from kongming.engine.environment import ratio_of
from kongming.engine.state import World
from kongming.records.node_load import RESOURCES, AppSlowdown, NodeLoad, Window
from kongming.steps import Steps

_AT_ONCE = 512
"""Slots whose history is read in one step, and nodes that are described in one."""


def node_loads(world: World, now: float, window_s: float = 0.0) -> Steps[list[NodeLoad]]:
    """All nodes by name; with ``window_s`` also from what was read in so many seconds.

    Of several last-level cache domains the worst counts. Nodes that are not in service, and
    fingerprints older than their time to live, have no slowdown.
    """
    known = _known(world, now)
    slowdown = {"all": world.slots.general[: world.slots.count].copy()}
    places = _places(world)
    for resource, its in places.items():
        slowdown[resource] = _means(world.slots.slowed[: world.slots.count, its])
    means: dict[str, Floats] = {}
    deviations: dict[str, Floats] = {}
    if window_s > 0.0:
        for resource, its in places.items():
            means[resource] = np.full(len(known), math.nan)
            deviations[resource] = np.full(len(known), math.nan)
            for start in range(0, len(known), _AT_ONCE):
                part = slice(start, min(start + _AT_ONCE, len(known)))
                means[resource][part], deviations[resource][part] = _window(
                    world, part, its, now - window_s
                )
                yield
    loads = []
    views = sorted(world.nodes, key=lambda view: (view.facts.name, view.facts.id))
    for number, view in enumerate(views, 1):
        slots = [slot for slot in view.slots.values() if slot < len(known)]
        fresh = [slot for slot in slots if known[slot]]
        in_service = world.nodes.state(view, now)[0] == "ready"
        taken = world.slots.taken_at[slots]
        loads.append(
            NodeLoad(
                view.facts.id,
                view.facts.name or view.facts.id,
                _worst(slowdown, fresh) if in_service else {},
                _windows(means, deviations, fresh) if in_service else {},
                None if np.isnan(taken).all() else max(0.0, now - float(np.nanmax(taken))),
                sum(1 for _ in world.residents.active_on(view.facts.id)),
            )
        )
        if number % _AT_ONCE == 0:
            yield
    return loads


def app_slowdowns(world: World, now: float) -> list[AppSlowdown]:
    """By application and placement, over the nodes in service with a fresh fingerprint; one that
    can be said of no node is left out."""
    known = _known(world, now)
    serving = {v.number for v in world.nodes if world.nodes.state(v, now)[0] == "ready"}
    known &= np.isin(world.slots.node[: len(known)], list(serving))
    found = []
    for model in sorted(world.catalog.all_served(), key=lambda one: one.key):
        row = world.matrix.log_slowdown[model.row : model.row + 1, : len(known)]
        logs = row[:, known[: row.shape[1]]]
        logs = logs[~np.isnan(logs)]
        if len(logs):
            numbers = (float(np.min(logs)), float(np.median(logs)), float(np.max(logs)))
            found.append(AppSlowdown(*model.key, *(ratio_of(number) for number in numbers)))
    return found


def _known(world: World, now: float) -> NDArray[np.bool_]:
    slots = world.slots
    n = slots.count
    fresh = now - slots.taken_at[:n] <= slots.ttl_s[:n]
    return np.asarray(slots.ready[:n] & fresh & ~np.isnan(slots.general[:n]))


def _places(world: World) -> dict[str, list[int]]:
    """The columns of each resource; one without any is not there."""
    width = min(len(world.columns), world.slots.width)
    families = [world.columns.family(place) for place in range(width)]
    found = {
        resource: [place for place, family in enumerate(families) if family in its]
        for resource, its in RESOURCES.items()
    }
    return {resource: its for resource, its in found.items() if its}


def _means(logs: Floats) -> Floats:
    """(..., C) -> (...) over the columns that are known; NaN without any."""
    known = ~np.isnan(logs)
    total = np.where(known, logs, 0.0).sum(axis=-1)
    count = known.sum(axis=-1)
    return np.asarray(np.where(count > 0, total / np.maximum(count, 1), math.nan))


def _window(world: World, part: slice, places: list[int], since: float) -> tuple[Floats, Floats]:
    """(n,) mean and standard deviation of the lost shares of readings taken after ``since``."""
    slots = world.slots
    logs = _means(slots.history[part][:, :, places] - slots.idle[part][:, None, places])
    logs = np.where(slots.history_at[part] >= since, logs, math.nan)
    lost = np.maximum(0.0, 1.0 - np.exp(-np.clip(logs, -50.0, 50.0)))
    mean = _means(lost)
    count = (~np.isnan(lost)).sum(axis=-1)
    squares = np.where(np.isnan(lost), 0.0, (lost - mean[:, None]) ** 2).sum(axis=-1)
    deviation = np.sqrt(squares / np.maximum(count - 1, 1))
    return mean, np.asarray(np.where(count > 1, deviation, math.nan))


def _worst(slowdown: dict[str, Floats], slots: list[int]) -> dict[str, float]:
    found = {}
    for resource, logs in slowdown.items():
        its = logs[slots]
        if not np.isnan(its).all():
            found[resource] = ratio_of(float(np.nanmax(its)))
    return found


def _windows(
    means: dict[str, Floats], deviations: dict[str, Floats], slots: list[int]
) -> dict[str, Window]:
    found = {}
    for resource, its in means.items():
        known = [slot for slot in slots if not math.isnan(its[slot])]
        if known:
            worst = max(known, key=lambda slot: float(its[slot]))
            deviation = float(deviations[resource][worst])
            found[resource] = Window(
                float(its[worst]), None if math.isnan(deviation) else deviation
            )
    return found
