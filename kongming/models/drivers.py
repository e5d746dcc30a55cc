"""What drives a slowdown: the share of each resource family in its logarithm.

A family's part is its Shapley value: the change of the predicted log slowdown when its columns go
from the idle reference to the environment's, averaged over all orders in which the families can
go. The parts add up to the log slowdown over that predicted for idle. Families that would make
the program faster are left out, and the rest are scaled to sum to 1.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from kongming.dataset import Floats
from kongming.prediction import Driver

_NOTHING = 1e-9


def drivers(
    predict: Callable[[Floats], Floats], times: Floats, idle: Floats, families: Sequence[str]
) -> tuple[Driver, ...]:
    """Shares of the log slowdown, largest first; they sum to 1.

    ``predict`` maps (n, p) seconds per operation to log slowdown; ``times`` and ``idle`` are
    (p,), and ``families`` names the resource of each column. Empty where nothing drives: the
    model does not depend on the environment, or nothing is slower than on the idle node.
    """
    names = sorted(set(families))
    columns = [np.array([family == name for family in families]) for name in names]
    subsets = 1 << len(names)
    rows = np.tile(idle, (subsets, 1))
    for k, mask in enumerate(columns):
        present = (np.arange(subsets) >> k) & 1 == 1
        rows[np.ix_(present, mask)] = times[mask]
    predicted = predict(rows)
    sizes = np.array([subset.bit_count() for subset in range(subsets)])
    total = math.factorial(len(names))
    parts = []
    for k in range(len(names)):
        without = np.flatnonzero((np.arange(subsets) >> k) & 1 == 0)
        orders = np.array(
            [
                math.factorial(size) * math.factorial(len(names) - size - 1) / total
                for size in sizes[without].tolist()
            ]
        )
        gain = predicted[without | (1 << k)] - predicted[without]
        parts.append(max(float(orders @ gain), 0.0))
    whole = sum(parts)
    if whole <= _NOTHING:
        return ()
    shares = [
        Driver(name, part / whole)
        for name, part in zip(names, parts, strict=True)
        if part / whole > _NOTHING
    ]
    return tuple(sorted(shares, key=lambda driver: (-driver.share, driver.family)))
