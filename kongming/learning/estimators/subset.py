"""Conversion of a model that was frozen on some columns to one over all columns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["over_all"]

_FAR = 1e300
"""The scale of a column that a kernel must ignore: all its distances become 0."""


def over_all(frozen: Mapping[str, Any], used: NDArray[np.intp], columns: int) -> dict[str, Any]:
    """Return ``frozen`` (a constant, trees or a kernel), which was fitted to the columns ``used``,
    as a model over a number of ``columns``."""
    kind = frozen["type"]
    if kind == "trees":
        positions = used.tolist()
        trees = [
            {**tree, "feature": [positions[j] for j in tree["feature"]]} for tree in frozen["trees"]
        ]
        return {**frozen, "trees": trees}
    if kind == "kernel":
        return {
            **frozen,
            "mean": _spread(frozen["mean"], used, columns, 0.0),
            "scale": _spread(frozen["scale"], used, columns, _FAR),
            "support": [_spread(row, used, columns, 0.0) for row in frozen["support"]],
        }
    if kind == "constant":
        return dict(frozen)
    raise ValueError(f"A frozen model of type {kind!r} cannot be converted to more columns.")


def _spread(values: list[float], used: NDArray[np.intp], size: int, rest: float) -> list[float]:
    padded = np.full(size, rest)
    padded[used] = values
    return [float(value) for value in padded]
