"""Whether the node visibly changed during a run, from the quick fingerprints around it. Pure."""

from __future__ import annotations

import math
from collections import defaultdict
from statistics import fmean

from kongming.fingerprint import Fingerprint
from kongming.run import Run

CHANGED = math.log(1.25)
"""A resource family that got slower or faster by more than a quarter has visibly changed."""


def shift(before: Fingerprint, after: Fingerprint) -> dict[str, float]:
    """By resource family, the mean of log(after / before) over the surrogates that both have."""
    earlier, later = before.times(), after.times()
    found: dict[str, list[float]] = defaultdict(list)
    for name in earlier.keys() & later.keys():
        family = before.surrogates[name].family
        found[family].append(math.log(later[name] / earlier[name]))
    return {family: fmean(sorted(values)) for family, values in sorted(found.items())}


def changed(run: Run, *, limit: float = CHANGED) -> bool | None:
    """Whether any family shifted by more than ``limit`` (in logs) during the run; None where the
    run lacks a fingerprint before or after it."""
    if run.before is None or run.after is None:
        return None
    return any(abs(value) > limit for value in shift(run.before, run.after).values())
