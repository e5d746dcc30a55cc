"""The coupling that runs were measured at: what the machine let one CPU do to another.

It is a stratum, not a column of the dataset: the readings around each run already show what a load
did at that moment, and a prediction from signatures has no coupling of its own to put into a
column. A model keeps the median of its training runs, and a fingerprint of a clearly different one
is warned of.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from statistics import median

from kongming.records.fingerprint import COUPLING
from kongming.records.run import Run, Signature

UNLIKE = 1.5
"""Two couplings differ clearly if one is so many times the other: single readings of a machine that
does not change differ by up to a fifth."""


def read(passive: Mapping[str, float]) -> float | None:
    """Return the coupling among signals; None if none was read, or none that can be true: a stream
    makes no chase clearly faster, so the chase without it was disturbed."""
    value = passive.get(COUPLING, 0.0)
    return value if value * UNLIKE >= 1.0 else None


def couplings(records: Iterable[Run | Signature]) -> list[float]:
    """Return the couplings read before runs and signatures; those without one are left out."""
    signals = (
        record.passive if isinstance(record, Run) else record.fingerprint.passive
        for record in records
    )
    return [value for each in signals if (value := read(each)) is not None]


def typical(runs: Iterable[Run]) -> float | None:
    """Return the median coupling of the successful runs; None if none was read."""
    values = couplings(run for run in runs if run.ok)
    return median(values) if values else None


def unlike(first: float, second: float) -> bool:
    """Return whether two couplings differ clearly."""
    return abs(math.log(first / second)) > math.log(UNLIKE)
