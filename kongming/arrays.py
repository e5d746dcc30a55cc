"""Parts of numpy arrays that many packages share: a type, and how they grow."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

_FEWEST_MORE = 16


def growth(had: int) -> int:
    """Return how many rows are added to an array of ``had`` that is full: a quarter. Doubled, an
    array of 10,000 rows has room for 16,384, and each of these takes memory."""
    return max(_FEWEST_MORE, had // 4)
