"""Sensitivity of a model: the predicted slowdown as the surrogates of one resource go from idle to
their maximum in training, all others idle. Pressure is the opposite direction: how much a program's
signature lies above idle, by resource family.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from kongming.arrays import Floats
from kongming.learning.model_file import FrozenModel, Variant

POINTS = 33
"""Number of points of a curve."""


@dataclass(frozen=True, eq=False, slots=True)
class Curve:
    """One curve. ``load`` (n,) is the slowdown of the surrogates that are moved (the geometric mean
    of several), from 1 on the idle node to the maximum in training; ``slowdown`` (n,) is the
    program's."""

    kind: Literal["family", "surrogate"]
    name: str
    surrogates: tuple[str, ...]
    load: Floats
    slowdown: Floats

    @property
    def reach(self) -> float:
        """The largest distance of the curve from its start, in logs."""
        return float(np.max(np.abs(np.log(self.slowdown / self.slowdown[0]))))


def family_curves(variant: Variant, model: FrozenModel, points: int = POINTS) -> list[Curve]:
    """Return a curve for each resource family, all its columns moved together; largest effect
    first.
    """
    families = sorted(set(variant.families))
    moved = [
        [j for j, family in enumerate(variant.families) if family == name] for name in families
    ]
    return _curves(variant, model, "family", families, moved, points)


def surrogate_curves(
    variant: Variant, model: FrozenModel, most: int = 6, points: int = POINTS
) -> list[Curve]:
    """Return curves for the surrogates that move the prediction most over the training runs."""
    order = np.argsort(-model.weights, kind="stable")[:most]
    used = [int(j) for j in order if model.weights[j] > 0.0]
    names = [variant.columns[j] for j in used]
    return _curves(variant, model, "surrogate", names, [[j] for j in used], points)


def pressures(variant: Variant, signature: Mapping[str, float]) -> dict[str, float]:
    """Return by resource family how much slower its surrogates are next to the program than on the
    idle node (geometric mean of those that ``signature``, in seconds per operation, has)."""
    logs: dict[str, list[float]] = {}
    for name, family, idle in zip(variant.columns, variant.families, variant.idle, strict=True):
        if name in signature:
            logs.setdefault(family, []).append(float(np.log(signature[name] / idle)))
    return {family: float(np.exp(np.mean(values))) for family, values in sorted(logs.items())}


def _curves(
    variant: Variant,
    model: FrozenModel,
    kind: Literal["family", "surrogate"],
    names: Sequence[str],
    moved: Sequence[Sequence[int]],
    points: int,
) -> list[Curve]:
    way = np.linspace(0.0, 1.0, points)
    most = np.log(np.maximum(variant.high, variant.idle) / variant.idle)
    curves = []
    for name, columns in zip(names, moved, strict=True):
        logs = np.zeros((points, len(variant.columns)))
        logs[:, list(columns)] = np.outer(way, most[list(columns)])
        curves.append(
            Curve(
                kind,
                name,
                tuple(variant.columns[j] for j in columns),
                np.exp(logs[:, list(columns)].mean(axis=1)),
                np.exp(model.log_slowdown(logs)),
            )
        )
    return sorted(curves, key=lambda curve: (-curve.reach, curve.name))
