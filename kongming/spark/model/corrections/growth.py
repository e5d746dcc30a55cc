"""Growth of lengths with the slots, as other applications on this cluster have shown it."""

from __future__ import annotations

import math
from dataclasses import dataclass

from kongming.spark.model.corrections.correction import Change, Lengths


@dataclass(frozen=True, slots=True)
class Growth:
    """Logs per doubling of the slots: of the tasks' lengths after all other corrections, and of the
    driver's gaps; ``scatter`` is what remains of another application, a deviation of the log of the
    runtime per doubling, None if a single application was seen."""

    tasks: float
    driver: float
    scatter: float | None

    name = "history"

    def apply(self, lengths: Lengths, change: Change) -> Lengths:
        doublings = _doublings(change)
        if not doublings or not self.tasks:
            return lengths
        return [own * math.exp(self.tasks * doublings) for own in lengths]

    def driver_factor(self, change: Change) -> float:
        return math.exp(self.driver * _doublings(change))

    def remarks(self, change: Change) -> list[str]:
        return []


def _doublings(change: Change) -> float:
    return math.log2(change.target.slots / change.recorded.slots)
