"""The readings before and after each run, as arrays: what each run met, and their noise."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from kongming.arrays import Floats


def log_readings(readings: Sequence[Mapping[str, float]], names: Sequence[str]) -> Floats:
    """Return (n, p) log seconds per operation in the order of ``names``; NaN where missing."""
    rows = [[row.get(name, math.nan) for name in names] for row in readings]
    return np.log(np.array(rows, dtype=np.float64)).reshape(len(readings), len(names))


def met(known: Floats, shift: Floats) -> Floats:
    """Return (n, p): the mean of the log readings ``known`` before a run and those after it.

    ``shift`` (n, p) is the difference of the two. Where it is NaN, the first reading stands.
    """
    # A second reading halves the variance of the noise.
    return np.where(np.isnan(shift), known, known + 0.5 * shift)


def mean_square(shift: Floats) -> Floats:
    """Return (p,): the mean square of ``shift`` (n, p) over its readings; 0 where all are NaN."""
    squares: Floats = np.nansum(shift**2, axis=0) / np.maximum(paired(shift), 1)
    return squares


def paired(shift: Floats) -> NDArray[np.intp]:
    """Return (p,): how many runs have a reading both before and after them."""
    counts: NDArray[np.intp] = np.count_nonzero(~np.isnan(shift), axis=0)
    return counts
