"""A job's runtime on several machines as loaded as they are: the scale model times the slowdown.

A scale model predicts the runtime on idle machines (Ernest, NSDI 2016, section 3.1), a sum of
terms; an interference model predicts the slowdown of each node. Every term is multiplied by the
slowdown of one node:

- parallel terms (those that fall with the machines, as scale/machines): the slowest node. Each
  machine has the same share of the work, and the step ends when the last of them has done it.
- communication terms (log(machines), machines and all others in which machines occur): the
  slowest node as well. A message waits for whoever sends it last, and each level of a tree and
  each round of a collect is a barrier.
- serial terms (intercept, and those that know no machines): the node of the driver.

How much a node slows each of them follows from profiles of the job at several configurations
(``part_slowdowns``); with one profile all of them are slowed alike.

The replay of a Spark application has no terms: its driver's gaps follow the driver's node, and its
tasks all nodes. How far they wait for the slowest is replayed: a free slot takes the next task, so
that a slow node does less of the work.

Pure: no store and no measuring.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from types import MappingProxyType

import numpy as np
from scipy.special import ndtri, stdtrit

from kongming.arrays import Floats
from kongming.records.errors import ExtrapolationError, InputError
from kongming.records.prediction import Interval
from kongming.records.scaling import Part, PartKind, ProfiledSlowdown, Scaled, Scaling, SlowedNode
from kongming.scale.decide.job_parts import (
    PartedNode,
    parted_node,
    parts_of,
    shares_of,
    waiting_slowdown,
    weights_of,
)
from kongming.scale.fit.model import ScaleModel, ScalePrediction
from kongming.scale.fit.scale_file import ScaleFile
from kongming.scale.fit.spark_replay import ReplayFit
from kongming.scale.points import Configuration
from kongming.steps import Steps, at_once

CORRELATION = 0.5
"""Correlation of the errors of two nodes' log slowdowns. Both are predictions of one model and
share its errors; the rest comes from each node's own readings. Independent errors would make the
slowest of many nodes too slow, equal errors the interval of many nodes too narrow."""

_HALF = 2047
"""Number of draws on each side of the median; fewer for thousands of nodes."""

_WORK = 2_000_000

_SHUFFLES = 64
"""Random orders of the draws that are kept; each node's is one of them, turned by its own number
of places."""

_AT_ONCE = 8
"""Number of nodes that are drawn for at once: their draws fit into a core's cache."""

_PARTED_IN_A_STEP = 64
"""Number of nodes whose parts are distinguished in one step: some 5 ms."""

_IN_A_STEP = 32 * _AT_ONCE
"""Number of nodes that are drawn for in one step: some 5 ms."""

_WIDEST = 8.0
_FLOOR_TO_DEVIATION = math.sqrt(math.pi / 2.0) / 100.0
"""Standard deviation of a normal distribution whose mean absolute error is 1%."""


@dataclass(frozen=True, eq=False, slots=True)
class Combination:
    """The prediction of a job: ``runtime`` in seconds, ``slowdown`` of the whole job over idle
    machines. ``idle`` is the scale model's prediction, ``scaled`` has the parts of both. ``notes``
    are remarks."""

    runtime: Interval
    slowdown: Interval
    idle: ScalePrediction
    scaled: Scaled
    extrapolating: bool
    notes: tuple[str, ...] = ()

    @property
    def slowest(self) -> SlowedNode:
        return next(node for node in self.scaled.nodes if node.node_id == self.scaled.slowest)


def model_for(file: ScaleFile, app: str, machine_type: str = "") -> ScaleModel:
    """Return the model of an application in a file: that of the job of its name, or the only one.

    Raises:
        InputError: several jobs and none of this name, or several machine types and none named.
        UnknownNameError: no such machine type.
    """
    group = app if any(model.group == app for model in file.models) else None
    return file.single(group, machine_type or None)


def combine_in_steps(
    model: ScaleModel,
    scaling: Scaling,
    nodes: Sequence[SlowedNode],
    *,
    profiled: Mapping[str, Sequence[ProfiledSlowdown]] = MappingProxyType({}),
    name: str = "",
    driver: str = "",
    level: float = 0.9,
    strict: bool = False,
    correlation: float = CORRELATION,
) -> Steps[Combination]:
    """Predict the runtime on these nodes, in steps; each node once, in any order.

    ``profiled``, by node id: how much the job is slowed there according to profiles of several
    configurations. With them the slowdowns of the parts are distinguished, and the node's own
    ``slowdown`` is not used.
    ``driver`` is the id of the node that the serial part runs on, by default the first one;
    ``name`` that of the scale model. With fewer nodes than machines several run on one node.

    The interval: log slowdowns err by a part that all nodes share and a part of each node's own
    (``correlation``), both independent of the scale model's error, which comes from other runs.
    Repeat noise is in both intervals but counts once: the slowdown's interval is narrowed by the
    scale model's noise floor. The slowest of several nodes is probably slower than the slowest
    median, and so the predicted median is higher. Draws are stratified with fixed seeds, one for
    each node's id: the same question has the same answer, and a higher slowdown of any node gives a
    longer runtime.

    Raises:
        InputError: no node, a duplicate node, more nodes than machines, or a driver that is none of
            them.
        ExtrapolationError: under ``strict``, the scale model or a slowdown extrapolates.
        CannotAnswerError: beyond a memory cliff.
    """
    _check(scaling, nodes, driver)
    at = Configuration(float(scaling.machines), scaling.scale)
    idle = model.predict(at, iterations=scaling.iterations, level=level)
    reasons = _reasons(idle, nodes)
    if strict and reasons:
        raise ExtrapolationError(
            f"This lies outside the range of the runs: {'; '.join(reasons)}.",
            hint="Run experiments nearer to it, or predict without --strict.",
        )
    iterations = 1.0 if scaling.iterations is None else scaling.iterations
    weights = weights_of(model, at, iterations)
    places = {(each.machines, each.scale) for some in profiled.values() for each in some}
    shares_at = {
        place: shares_of(weights_of(model, Configuration(float(place[0]), place[1]), iterations))
        for place in places
    }
    parted = []
    for number, node in enumerate(nodes):
        if number and number % _PARTED_IN_A_STEP == 0:
            yield
        parted.append(
            parted_node(node, profiled.get(node.node_id, ()), at, weights, shares_at, correlation)
        )
    nodes = [node.slowed for node in parted]
    first = next((node for node in parted if node.slowed.node_id == driver), parted[0])
    shares = shares_of(weights)
    waiting = 1.0
    if isinstance(model.fit, ReplayFit):
        waiting = model.fit.evenness(_per_machine(nodes, scaling.machines))
    slowed, scale = yield from _draws(
        model, idle, parted, first.slowed.node_id, shares, correlation, waiting
    )
    calibrated = model.spread.coverage is not None and all(
        node.slowdown.calibrated for node in nodes
    )
    slowest = max(parted, key=lambda node: waiting_slowdown(node, shares)).slowed
    parts = parts_of(weights, idle.median, first, parted)
    scaled = Scaled(
        machines=scaling.machines,
        scale=scaling.scale,
        model=name,
        kind=model.fit.kind,
        idle_s=Interval(
            idle.median, idle.lower, idle.upper, level, model.spread.coverage is not None
        ),
        driver=first.slowed.node_id,
        slowest=slowest.node_id,
        parts=parts,
        nodes=tuple(nodes),
        reasons=reasons,
    )
    # Whichever node is slowed "at least" so much, all the others may have to wait for it.
    at_least = any(node.slowdown.at_least for node in nodes)
    slowdown = replace(_interval(slowed, level, calibrated), at_least=at_least)
    runtime = _around(slowdown.median, slowed * scale, level, calibrated).scaled(idle.median)
    return Combination(
        runtime=replace(runtime, at_least=at_least),
        slowdown=slowdown,
        idle=idle,
        scaled=scaled,
        extrapolating=bool(reasons),
        notes=_notes(model, scaling, nodes, parts) + _profiled_note(places),
    )


combine = at_once(combine_in_steps)


def _per_machine(nodes: Sequence[SlowedNode], machines: int) -> list[float]:
    """The median slowdown of each machine; machines go to the nodes in turn."""
    return [nodes[k % len(nodes)].slowdown.median for k in range(machines)]


def _check(scaling: Scaling, nodes: Sequence[SlowedNode], driver: str) -> None:
    ids = [node.node_id for node in nodes]
    if not ids:
        raise InputError("is empty.", field="nodes", allowed="one node or more")
    if len(set(ids)) < len(ids):
        twice = next(node_id for node_id in ids if ids.count(node_id) > 1)
        raise InputError("has a duplicate node.", field="nodes", value=twice)
    if len(ids) > scaling.machines:
        raise InputError(
            f"{len(ids)} nodes are more than the machines.",
            field="machines",
            value=scaling.machines,
            allowed=f"{len(ids)} or more",
        )
    if driver and driver not in ids:
        raise InputError(
            "is not one of the nodes.", field="driver", value=driver, allowed=", ".join(ids[:8])
        )


def _reasons(idle: ScalePrediction, nodes: Sequence[SlowedNode]) -> tuple[str, ...]:
    outside = [node.name or node.node_id for node in nodes if node.extrapolating]
    reasons = [f"scale model: {reason}" for reason in idle.reasons]
    if outside:
        named = ", ".join(sorted(outside)[:4]) + (", ..." if len(outside) > 4 else "")
        reasons.append(f"slowdown: outside of the training environments on {named}")
    return tuple(reasons)


def _notes(
    model: ScaleModel, scaling: Scaling, nodes: Sequence[SlowedNode], parts: Sequence[Part]
) -> tuple[str, ...]:
    notes = []
    if parts[0].kind == "whole":
        notes.append(
            f"The scale model ({model.fit.kind}) has no terms here: the slowest node "
            "determines the whole runtime."
        )
    if len(nodes) < scaling.machines:
        where = "one node" if len(nodes) == 1 else f"{len(nodes)} nodes"
        notes.append(
            f"{scaling.machines} machines on {where}: machines on one node have the same "
            "slowdown, and slow each other only as in the scale model's runs."
        )
    return tuple(notes)


def _profiled_note(places: Collection[tuple[int, float]]) -> tuple[str, ...]:
    if len(places) < 2:
        return ()
    named = "; ".join(str(Configuration(machines, scale)) for machines, scale in sorted(places))
    return (f"How much each part is slowed follows from the profiles on {named}.",)


def _draws(
    model: ScaleModel,
    idle: ScalePrediction,
    nodes: Sequence[PartedNode],
    driver: str,
    shares: Mapping[PartKind, float],
    correlation: float,
    waiting: float = 1.0,
) -> Steps[tuple[Floats, Floats]]:
    """Draw, in steps, (n,) the whole job's slowdown, and (n,) the idle runtime over its median.

    ``waiting``: from 0, the nodes share the work freely, to 1, all wait for the slowest.
    """
    half = min(_HALF, max(_WORK // len(nodes), 256))
    noise = _noise(model)
    common = math.sqrt(correlation) * _mirrored(half, math.inf, "common")
    own = math.sqrt(1.0 - correlation)
    serial = shares.get("serial", 0.0)
    # Parts that every node slows alike have the same slowest.
    alike = all(not node.relative for node in nodes)
    kinds = [kind for kind in shares if kind != "serial"]
    groups = [kinds] if alike and kinds else [[kind] for kind in kinds]
    slowest = [np.full(2 * half + 1, -np.inf) for _ in groups]
    speeds = np.zeros(2 * half + 1)
    first = speeds
    for start in range(0, len(nodes), _AT_ONCE):
        if start and start % _IN_A_STEP == 0:
            yield
        some = nodes[start : start + _AT_ONCE]
        draws = np.array(
            [_mirrored(half, math.inf, f"node {node.slowed.node_id}") for node in some]
        )
        # In place, here and below: most of the time goes into memory.
        draws *= own
        draws += common
        logs = _log_slowdowns([node.slowed.slowdown for node in some], draws, noise)
        for place, group in enumerate(groups):
            moved = logs if alike else logs + _relative(some, group[0])
            slowest[place] = np.maximum(slowest[place], moved.max(axis=0))
        if waiting < 1.0:
            speeds += np.exp(-logs - _relative(some, "parallel")).sum(axis=0)
        for log, node in zip(logs, some, strict=True):
            if node.slowed.node_id == driver:
                first = log + math.log(node.relative.get("serial", 1.0))
    slowed = np.zeros(2 * half + 1)
    for group, logs in zip(groups, slowest, strict=True):
        part = np.exp(logs)
        if waiting < 1.0:
            part = waiting * part + (1.0 - waiting) * len(nodes) / speeds
        # Exact, so that nothing is slowed on idle nodes.
        slowed += (1.0 - serial if alike else shares[group[0]]) * part
    if serial > 0.0:
        slowed += serial * np.exp(first)
    quantiles = _mirrored(half, model.spread.freedom, "scale")
    deviations = np.where(quantiles < 0.0, idle.deviation_below, idle.deviation)
    return slowed, np.exp(np.clip(deviations * quantiles, -_WIDEST, _WIDEST))


def _relative(nodes: Sequence[PartedNode], kind: PartKind) -> Floats:
    """Return (k, 1): the log of what each node slows a part by over the whole job."""
    return np.log([[node.relative.get(kind, 1.0)] for node in nodes])


@lru_cache(maxsize=64)
def _quantiles(count: int, freedom: float) -> Floats:
    """Return (count,) quantiles of the upper half of Student's t distribution with ``freedom``
    degrees of freedom; normal for infinity."""
    steps = (np.arange(count) + 0.5) / (2 * count) + 0.5
    quantiles = ndtri(steps) if math.isinf(freedom) else stdtrit(freedom, steps)
    return np.asarray(quantiles, dtype=np.float64)


def _mirrored(count: int, freedom: float, seed: str) -> Floats:
    """Return (2 count + 1,): quantiles of Student's distribution in random order with random signs,
    mirrored, and 0, so that the median of any sum of such arrays is 0."""
    digest = hashlib.sha256(seed.encode()).digest()
    which, shift = digest[0] % _SHUFFLES, int.from_bytes(digest[1:9], "big") % count
    shuffled = _shuffled(count, freedom, which)
    # A rotation of a random order is also a random order, and each node gets its own.
    mirrored = np.zeros(2 * count + 1)
    mirrored[:shift] = shuffled[count - shift :]
    mirrored[shift:count] = shuffled[: count - shift]
    np.negative(mirrored[:count], out=mirrored[count:-1])
    return mirrored


@lru_cache(maxsize=4 * _SHUFFLES)
def _shuffled(count: int, freedom: float, which: int) -> Floats:
    """Return (count,): the quantiles in random order with random signs."""
    random = np.random.default_rng([count, which])
    order, signs = random.permutation(count), random.choice((-1.0, 1.0), count)
    return np.asarray(_quantiles(count, freedom)[order] * signs, dtype=np.float64)


def _log_slowdowns(slowdowns: Sequence[Interval], draws: Floats, noise: float) -> Floats:
    """Convert (k, n) standard normal draws to log slowdowns with these (k) intervals, without
    repeat noise."""
    wide = ndtri(0.5 + np.array([slowdown.level for slowdown in slowdowns]) / 2.0)
    middle = np.log([slowdown.median for slowdown in slowdowns])
    lower = np.log(np.maximum([slowdown.lower for slowdown in slowdowns], 1e-300))
    upper = np.log([slowdown.upper for slowdown in slowdowns])
    down, up = (
        np.sqrt(np.maximum((np.minimum(end, _WIDEST) / wide) ** 2 - noise**2, 0.0))[:, None]
        for end in (middle - lower, upper - middle)
    )
    # Both sides apart: in cache that takes a fraction of np.where's time.
    faster = np.minimum(draws, 0.0)
    faster *= down
    np.maximum(draws, 0.0, out=draws)
    draws *= up
    draws += faster
    draws += middle[:, None]
    return draws


def _noise(model: ScaleModel) -> float:
    """Return the repeat noise of one configuration: a standard deviation of logs, 0 if unknown.

    Noise that is assumed, as a stack's without repeats, is not taken off the slowdowns' intervals:
    it may be larger than theirs, and would take off what is not known of the slowdown. The interval
    then counts the noise of runs twice.
    """
    floor = model.report.get("noise_floor_pct")
    return 0.0 if floor is None else float(floor) * _FLOOR_TO_DEVIATION


def _interval(values: Floats, level: float, calibrated: bool) -> Interval:
    tail = (1.0 - level) / 2.0
    lower, median, upper = np.quantile(values, [tail, 0.5, 1.0 - tail]).tolist()
    return Interval(median, lower, upper, level, calibrated)


def _around(middle: float, values: Floats, level: float, calibrated: bool) -> Interval:
    """Return the interval of draws around the product of the two medians. If the slowdown's
    interval is wider above than below, as on quiet nodes for safety, the median of the draws lies
    above it."""
    interval = _interval(values, level, calibrated)
    return replace(interval, median=min(max(middle, interval.lower), interval.upper))
