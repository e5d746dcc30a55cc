"""The consensus of several models: the mean of their log slowdowns, shrunk by what is not known.

A prediction leaves 1 only as far as the members agree that it does, and as far as the training runs
say anything of the environment. Of k predictions with mean m and variance v, and with a variance u
of what the runs leave open (``kongming.learning.posterior``), m^3 / (m^2 + v + u) is nearly m where
both are small, and nearly 0, which says that nothing slows the program, where they are not; there
is no constant to tune.
"""

from __future__ import annotations

import numpy as np

from kongming.arrays import Floats


def consensus(predictions: Floats, unknown: Floats | float) -> Floats:
    """Return (n,) log slowdowns from those of k members, two or more: ``predictions`` (n, k), and
    the variance that the training runs leave open, (n,) or of all."""
    mean = predictions.mean(axis=1)
    squared = mean**2
    total = squared + predictions.var(axis=1, ddof=1) + unknown
    share = np.divide(squared, total, out=np.zeros_like(mean), where=total > 0.0)
    return np.asarray(mean * share, dtype=np.float64)
