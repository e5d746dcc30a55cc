"""Shares of time in which residents of a node keep a CPU awake, and which of these count.

What an awake CPU does to a program was measured next to neighbours at the placement of its model:
at ``cross-socket`` in other cache domains of the node, at all others in the program's own domain.
So shares come in pairs (..., 2): next to residents of its own domain, and next to all of the node.
A model at ``cross-socket`` counts all; its presence is 0 (``learning.presence``).
"""

from __future__ import annotations

import numpy as np

from kongming.arrays import Floats

ACROSS = "cross-socket"
"""The placement next to programs in other cache domains."""

_DOMAIN, _NODE = 0, 1


def counted(placement: str) -> int:
    """Return which of a pair counts for a model at this placement."""
    return _NODE if placement == ACROSS else _DOMAIN


def pairs(shares: Floats, here: Floats) -> Floats:
    """Return (n, 2) of residents by the ``shares`` (n,) of each; ``here`` (n,) is 1 for those in
    the domain itself, and 0 for others."""
    return np.stack([shares * here, shares], axis=1)


def of_others(shares: Floats) -> Floats:
    """Return (n, 2) of all others together (``learning.awake.together``), for each of n
    residents, of the pairs (n, 2) of each."""
    asleep = 1.0 - shares
    before, after = np.ones((2, *shares.shape))
    np.multiply.accumulate(asleep[:-1], out=before[1:])
    np.multiply.accumulate(asleep[:0:-1], out=after[-2::-1])
    return np.asarray(1.0 - before * after)
