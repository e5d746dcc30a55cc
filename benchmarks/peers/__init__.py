"""Predictors of others, built from their papers, to stand next to KONGMING's in its tables.

    python -m benchmarks.peers.reproduce     what each reaches where its assumption holds

The README next to this file says what was taken from each paper and what is different.
"""

from benchmarks.peers.bubble_up import BubbleUp
from benchmarks.peers.comparing import NAMES, predictions
from benchmarks.peers.paragon import Paragon, ParagonPairs
from benchmarks.peers.peer import Measured, Pair, Peer, Profile
from benchmarks.peers.zhao import Zhao

__all__ = [
    "NAMES",
    "BubbleUp",
    "Measured",
    "Pair",
    "Paragon",
    "ParagonPairs",
    "Peer",
    "Profile",
    "Zhao",
    "predictions",
]
