"""The regions of a space in words: where its tree cuts, and what runs measured on each side."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from kongming.arrays import Floats
from kongming.explore.features import Feature, Features
from kongming.explore.model_file import ExploreModel
from kongming.explore.runs_table import text_of
from kongming.explore.tree.oblique_model_tree import Node

SLIGHT = 0.05
"""Weights of a cut below this share of the largest one are not put into words."""


@dataclass(frozen=True, slots=True)
class Region:
    """A node of the tree, in depth-first order. ``cut`` is the condition of its first child, None
    for a leaf; ``runs`` are those within, of which ``ended`` were ended at their time limit;
    ``mean`` and ``spread`` (standard deviation) are of their values, of those that were ended of
    their limits, so that the mean is a lower bound then; ``error`` is the root mean squared error
    of its line, each run left out, within the regions as they are: the cuts saw all runs, so that
    new ones are missed by more."""

    depth: int
    condition: str
    cut: str | None
    runs: int
    ended: int
    mean: float
    spread: float
    error: float


def regions(model: ExploreModel) -> list[Region]:
    """Describe the tree of a model's runs."""
    # What the tree is fitted to, so that no region of it is without a run.
    known = model.profiler.observations
    values, ended = known.observed, known.censored[known.point]
    features = Features(model.profiler.space.dimensions)

    def walk(node: Node, depth: int, condition: str) -> Iterator[Region]:
        rows = np.isin(known.point, node.rows)
        sides = []
        if node.normal is not None:
            sides = [
                in_words(sign * node.normal, sign * node.offset, features, model)
                for sign in (1.0, -1.0)
            ]
        yield Region(
            depth=depth,
            condition=condition,
            cut=sides[0] if sides else None,
            runs=int(rows.sum()),
            ended=int(ended[rows].sum()),
            mean=float(values[rows].mean()),
            spread=float(values[rows].std()),
            error=math.sqrt(node.error / len(node.rows)),
        )
        for child, side in zip(node.children, sides, strict=True):
            yield from walk(child, depth + 1, side)

    return list(walk(model.profiler.tree_.root_, 0, "all"))


def in_words(normal: Floats, offset: float, features: Features, model: ExploreModel) -> str:
    """Put ``x @ normal <= offset`` into words, in the units of the parameters.

    Example: ``nodes <= 6``, ``codec is xz``, ``nodes + 0.25 mem_gb <= 12``.
    """
    columns = features.columns
    weights = np.array(
        [weight / _span(column) for weight, column in zip(normal, columns, strict=True)]
    )
    limit = offset + sum(
        weight * _low(column) for weight, column in zip(weights, columns, strict=True)
    )
    heavy = np.abs(normal) >= SLIGHT * np.max(np.abs(normal))
    # Light ones count with the middle of their column.
    limit -= sum(
        weights[k] * (_low(columns[k]) + _span(columns[k]) / 2.0) for k in np.flatnonzero(~heavy)
    )
    (places,) = np.nonzero(heavy)
    if len(places) == 1:
        return _axis(columns[places[0]], weights[places[0]], limit, model)
    lead = weights[places[np.argmax(np.abs(normal[places]))]]
    parts: list[str] = []
    for place in places:
        share = weights[place] / lead
        size = "" if math.isclose(abs(share), 1.0, rel_tol=1e-3) else f"{abs(share):.3g} "
        sign = ("- " if share < 0 else "") if not parts else ("- " if share < 0 else "+ ")
        parts.append(f"{sign}{size}{_term(columns[place], model)}")
    return f"{' '.join(parts)} {'<=' if lead > 0 else '>'} {limit / lead:.4g}"


def _term(column: Feature, model: ExploreModel) -> str:
    """A column as a term of a sum: a condition counts as 1 where it holds."""
    dimension = model.profiler.space.dimensions[column.place]
    if column.presence:
        return f"({column.name})"
    if column.choice is not None:
        return f"({dimension.name} is {dimension.values[column.choice]})"
    if dimension.kind in ("choice", "boolean") and len(dimension.values) == 2:
        return f"({dimension.name} is {text_of(dimension.values[1])})"
    return column.name


def _axis(column: Feature, weight: float, limit: float, model: ExploreModel) -> str:
    dimension = model.profiler.space.dimensions[column.place]
    below, at = weight > 0, limit / weight
    if column.presence:
        return f"{column.name} not" if below else column.name
    if column.choice is not None:
        value = dimension.values[column.choice]
        return f"{dimension.name} is not {value}" if below else f"{dimension.name} is {value}"
    if column.log:
        at = math.exp(min(at, 700.0))
    if dimension.values and dimension.kind != "numbers":
        chosen = [text_of(v) for place, v in enumerate(dimension.values) if (place <= at) == below]
        return f"{dimension.name} is {' or '.join(chosen)}"
    return f"{dimension.name} {'<=' if below else '>'} {at:.4g}"


def _low(column: Feature) -> float:
    if column.presence or column.choice is not None:
        return 0.0
    return math.log(column.low) if column.log else column.low


def _span(column: Feature) -> float:
    if column.presence or column.choice is not None:
        return 1.0
    if column.log:
        return math.log(column.high / column.low)
    return column.high - column.low
