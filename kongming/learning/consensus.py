"""The consensus of several models: the mean of their log slowdowns, shrunk by what is not known.

A prediction leaves what is usual only as far as the members agree that it does, and as far as the
training runs say anything of the environment. Of k predictions with mean m and variance v, with a
variance u of what the runs leave open (``kongming.learning.posterior``), and with what is usual
next to a neighbour, c (``kongming.learning.presence``; 0 without one), the consensus is s m + (1 -
s) c, where s = m^2 / (m^2 + v + u): nearly m where v and u are small, and nearly c where they are
not. There is no constant to tune.
"""

from __future__ import annotations

import numpy as np

from kongming.arrays import Floats


def consensus(predictions: Floats, unknown: Floats | float, usual: Floats | float = 0.0) -> Floats:
    """Return (n,) log slowdowns from those of k members, two or more: ``predictions`` (n, k), the
    variance that the training runs leave open, and what is usual where nothing is known; each of
    these (n,) or of all."""
    mean = predictions.mean(axis=1)
    squared = mean**2
    total = squared + predictions.var(axis=1, ddof=1) + unknown
    share = np.divide(squared, total, out=np.zeros_like(mean), where=total > 0.0)
    return np.asarray(mean * share + usual * (1.0 - share), dtype=np.float64)
