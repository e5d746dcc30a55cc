"""The parts of a job: what each takes of its idle runtime, and how much each node slows it.

A part is a term of the scale model, and of a kind: serial, parallel or communication
(``combination`` says which node each kind follows). Pure.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from kongming.arrays import Floats
from kongming.expressions import parse
from kongming.records.scaling import Part, PartKind, ProfiledSlowdown, SlowedNode
from kongming.scale.decide.part_slowdowns import around, nearest_mean, part_slowdowns
from kongming.scale.fit.backbone import backbone_of
from kongming.scale.fit.contexts.context_model import ContextFit
from kongming.scale.fit.model import ScaleModel
from kongming.scale.fit.spark_replay import ReplayFit
from kongming.scale.fit.terms import SETUP
from kongming.scale.points import Configuration, Points

_KINDS: dict[str, PartKind] = {
    "intercept": "serial",
    "scale/machines": "parallel",
    "log(machines)": "communication",
    "machines": "communication",
    # Two-stage aggregation over sqrt(n) partitions (section 3.4): partial sums that are sent.
    "sqrt": "communication",
    "square": "parallel",
    "nlogn": "parallel",
    "nlog2n": "parallel",
    SETUP: "serial",
}

Weights = list[tuple[str, PartKind, float]]
"""Each term, its kind, and its share of the idle runtime."""

_PARTS: tuple[PartKind, ...] = ("serial", "parallel", "communication")


@dataclass(frozen=True, eq=False, slots=True)
class PartedNode:
    """A node with its slowdown of the whole job at the question, and by kind of part how many
    times that it slows the part."""

    slowed: SlowedNode
    relative: Mapping[PartKind, float]

    def of(self, kind: PartKind) -> float:
        return self.slowed.slowdown.median * self.relative.get(kind, 1.0)


def kind_of_term(key: str) -> PartKind:
    """Return the kind of a term's key or of a user's expression. Raises InputError if it is
    neither.
    """
    if key in _KINDS:
        return _KINDS[key]
    expression = parse(key)
    if "machines" not in expression.names:
        return "serial"
    # Parallel work falls with the number of machines, at any scale.
    few, many = (float(expression(_at(machines=machines))[0]) for machines in (2.0, 64.0))
    return "parallel" if many < few else "communication"


def weights_of(model: ScaleModel, at: Configuration, iterations: float) -> Weights:
    """Return each term, its kind, and its share of the idle runtime."""
    if isinstance(model.fit, ReplayFit):
        share = model.fit.serial_share(float(model.fit.predict(Points.of([at]))[0]))
        return [("driver", "serial", share), ("tasks", "parallel", 1.0 - share)]
    fit = model.fit
    backbone = fit.trend if isinstance(fit, ContextFit) else backbone_of(fit)
    if backbone is None:
        return [("runtime", "whole", 1.0)]
    points = Points.of([at], iterations)
    seconds = (backbone.features(points)[0] * backbone.coef).tolist()
    total = math.fsum(seconds)
    if total <= backbone.least:
        return [("runtime", "whole", 1.0)]
    keys = [(term.key, kind_of_term(term.key)) for term in backbone.terms]
    if backbone.cliff is not None:
        # Beyond a cliff the memory of each machine is full.
        keys += [("cliff step", "parallel"), ("cliff slope", "parallel")]
    return [
        (key, kind, value / total)
        for (key, kind), value in zip(keys, seconds, strict=True)
        if value > 0.0
    ]


def shares_of(weights: Weights) -> dict[PartKind, float]:
    """Return the share of each kind of part in the idle runtime."""
    shares: dict[PartKind, float] = {}
    for _, kind, weight in weights:
        shares[kind] = shares.get(kind, 0.0) + weight
    return shares


def parted_node(
    node: SlowedNode,
    profiled: Sequence[ProfiledSlowdown],
    at: Configuration,
    weights: Weights,
    shares_at: Mapping[tuple[int, float], Mapping[PartKind, float]],
    correlation: float,
) -> PartedNode:
    """Return a node with the slowdown of each part at the question, from its profiles.

    ``shares_at`` has the shares of the parts at each profiled machines and scale; ``correlation``
    is that of the errors of two profiles.
    """
    if not profiled:
        return PartedNode(node, {})
    slowdowns = [each.slowdown for each in profiled]
    medians = np.array([slowdown.median for slowdown in slowdowns])
    distances = np.hypot(
        np.log([each.machines / at.machines for each in profiled]),
        np.log([each.scale / at.scale for each in profiled]),
    )
    shares = [shares_at[each.machines, each.scale] for each in profiled]
    here = shares_of(weights)
    relative: dict[PartKind, float] = {}
    if any("whole" in each for each in (here, *shares)):
        median = nearest_mean(distances, medians)
    else:
        kinds = [kind for kind in _PARTS if any(kind in each for each in (here, *shares))]
        rows = [[each.get(kind, 0.0) for kind in kinds] for each in (here, *shares)]
        parts = part_slowdowns(np.array(rows[1:]), slowdowns, correlation)
        by_parts, *there = (np.array(rows) @ parts).tolist()
        relative = {kind: part / by_parts for kind, part in zip(kinds, parts.tolist(), strict=True)}
        median = by_parts * nearest_mean(distances, medians / np.array(there))
        median = max(median, min(1.0, float(medians.min())))
    slowed = replace(node, slowdown=around(median, slowdowns))
    return PartedNode(slowed, relative)


def waiting_slowdown(node: PartedNode, shares: Mapping[PartKind, float]) -> tuple[float, str]:
    """Return what orders nodes by how slow they make the parts that wait for the slowest."""
    waiting = {kind: share for kind, share in shares.items() if kind != "serial"}
    total = math.fsum(waiting.values())
    if total <= 0.0:
        return node.slowed.slowdown.median, node.slowed.node_id
    slowed = math.fsum(share * node.of(kind) for kind, share in waiting.items()) / total
    return slowed, node.slowed.node_id


def parts_of(
    weights: Weights, idle_s: float, driver: PartedNode, nodes: Sequence[PartedNode]
) -> tuple[Part, ...]:
    """The greatest first."""
    followed = {
        kind: driver
        if kind == "serial"
        else max(nodes, key=lambda node: (node.of(kind), node.slowed.node_id))
        for kind in {kind for _, kind, _ in weights}
    }
    slowed = [weight * followed[kind].of(kind) for _, kind, weight in weights]
    total = math.fsum(slowed)
    parts = [
        Part(term, kind, followed[kind].slowed.node_id, weight * idle_s, value / total)
        for (term, kind, weight), value in zip(weights, slowed, strict=True)
    ]
    return tuple(sorted(parts, key=lambda part: (-part.share, part.term)))


def _at(**values: float) -> dict[str, Floats]:
    return {name: np.array([value]) for name, value in ({"scale": 1.0, "n": 1e6} | values).items()}
