"""Check that the scheduler's questions name all nodes that are known. Pure."""

from __future__ import annotations

from collections import deque

QUESTIONS = 50
"""So many questions in a row tell what is steady."""
FEW = 0.75
"""A share below this is far from all: by default the scheduler shows 67 % of 150 nodes, 47 % of
400 and 10 % of 5,000."""
ALWAYS_SHOWN = 100
"""So many nodes are always shown, minFeasibleNodesToFind, if the pod fits them."""


class Coverage:
    """The greatest share of known nodes that any of the latest questions named."""

    def __init__(self) -> None:
        self._shares: deque[float] = deque(maxlen=QUESTIONS)
        self._known = 0

    def add(self, named: int, known: int) -> float:
        """Take in a question that named so many of ``known`` nodes, and return the share."""
        self._known = known
        self._shares.append(named / known)
        return self._shares[-1]

    @property
    def greatest(self) -> float:
        """One pod may fit few nodes; where each question names few, others are never shown."""
        return max(self._shares, default=1.0)

    @property
    def low(self) -> bool:
        steady = len(self._shares) == QUESTIONS
        return steady and self._known > ALWAYS_SHOWN and self.greatest < FEW
