"""The consensus of several models: the mean of their log slowdowns, shrunk by their disagreement.

A prediction leaves 1 only as far as the members agree that it does. Of k predictions with mean m
and variance v, m^3 / (m^2 + v) is nearly m where they agree, and nearly 0, which says that nothing
slows the program, where they do not; there is no constant to tune.
"""

from __future__ import annotations

import numpy as np

from kongming.arrays import Floats


def consensus(predictions: Floats) -> Floats:
    """Return (n,) log slowdowns from those of k members, two or more: ``predictions`` (n, k)."""
    mean = predictions.mean(axis=1)
    squared = mean**2
    total = squared + predictions.var(axis=1, ddof=1)
    share = np.divide(squared, total, out=np.zeros_like(mean), where=total > 0.0)
    return np.asarray(mean * share, dtype=np.float64)
