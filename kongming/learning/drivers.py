"""Drivers of a slowdown: the share of each resource family in its logarithm.

A family's part is its Shapley value: the change of the predicted log slowdown when its columns go
from the idle reference to the environment's, averaged over all orders of the families. The parts
add up to the log slowdown over that predicted for idle. Families that would make the program faster
are left out, and the rest are scaled to sum to 1.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from kongming.arrays import Floats
from kongming.records.prediction import Driver

_NOTHING = 1e-9


def drivers(
    predict: Callable[[Floats], Floats], times: Floats, idle: Floats, families: Sequence[str]
) -> tuple[Driver, ...]:
    """Return the shares of the log slowdown, largest first; they sum to 1.

    ``predict`` maps (n, p) readings, in seconds per operation or in logs, to log slowdown;
    ``times`` and ``idle`` (p,) are such readings, and ``families`` names the resource of each
    column. The result is empty if the model does not depend on the environment, or if nothing is
    slower than on the idle node.
    """
    names, slower, weights = _coalitions(tuple(families))
    predicted = predict(np.where(slower, times, idle))
    parts = [max(float(part), 0.0) for part in weights @ predicted]
    total = sum(parts)
    if total <= _NOTHING:
        return ()
    shares = [
        Driver(name, part / total)
        for name, part in zip(names, parts, strict=True)
        if part / total > _NOTHING
    ]
    return tuple(sorted(shares, key=lambda driver: (-driver.share, driver.family)))


@lru_cache(maxsize=256)
def _coalitions(families: tuple[str, ...]) -> tuple[list[str], NDArray[np.bool_], Floats]:
    """Return the names of the F families, the columns that are slower in each set of families (2^F,
    p), and the weight of the prediction for each set in each family's part (F, 2^F)."""
    names = sorted(set(families))
    subsets = np.arange(1 << len(names))
    within = (subsets[:, None] >> np.arange(len(names))) & 1 == 1
    slower = within[:, [names.index(family) for family in families]]
    total = math.factorial(len(names))
    weights = np.zeros((len(names), len(subsets)))
    for k in range(len(names)):
        for subset in np.flatnonzero(~within[:, k]).tolist():
            size = subset.bit_count()
            order = math.factorial(size) * math.factorial(len(names) - size - 1) / total
            weights[k, subset] = -order
            weights[k, subset | (1 << k)] = order
    return names, slower, weights
