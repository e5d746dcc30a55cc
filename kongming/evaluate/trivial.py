"""Trivial predictors that ignore the environment: the baselines of every model."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from kongming.evaluate.cases import Floats

MEAN = "MEAN"
"""The paper's: the mean over the training runs."""

SOLO = "SOLO"
"""The solo time: no interference at all."""

PAIRMEAN = "PAIRMEAN"
"""The mean of the application's measured pairs, the scored partner left out."""

TRIVIAL = (MEAN, SOLO, PAIRMEAN)


def mean_of_others(values: Floats, groups: NDArray[np.intp], left_out: NDArray[np.intp]) -> Floats:
    """(n,): for each value the mean of the values in its group that are not left out with it.

    ``groups`` and ``left_out`` (n,) number the application and the unit that is scored together (a
    partner, an environment). NaN if there is no other value.
    """
    means = np.full(len(values), np.nan)
    for i in range(len(values)):
        others = values[(groups == groups[i]) & (left_out != left_out[i])]
        if len(others):
            means[i] = np.mean(others)
    return means
