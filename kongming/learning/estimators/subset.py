"""A model frozen on some columns, as one over all of them that looks at those alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["over_all"]

_FAR = 1e300
"""The scale of a column that a kernel must not see: nothing differs on it."""


def over_all(frozen: Mapping[str, Any], used: NDArray[np.intp], columns: int) -> dict[str, Any]:
    """``frozen`` (a constant, trees or a kernel), fitted to the columns ``used``, over so many
    ``columns``."""
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
    raise ValueError(f"A frozen model of type {kind!r} cannot be read over more columns.")


def _spread(values: list[float], used: NDArray[np.intp], size: int, rest: float) -> list[float]:
    whole = np.full(size, rest)
    whole[used] = values
    return [float(value) for value in whole]
