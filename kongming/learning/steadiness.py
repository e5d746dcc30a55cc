"""Whether the node visibly changed during a run, from the quick fingerprints around it. Pure."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping
from statistics import fmean, median

from kongming.records.fingerprint import Fingerprint
from kongming.records.run import Run

CHANGED = math.log(1.25)
"""A resource family that got slower or faster by more than a quarter has visibly changed."""

USUAL = 3.0
"""A shift counts where it is so many times the usual one: some families never read the same."""


def shift(before: Fingerprint, after: Fingerprint) -> dict[str, float]:
    """By resource family, the mean of log(after / before) over the surrogates that both have."""
    earlier, later = before.times(), after.times()
    found: dict[str, list[float]] = defaultdict(list)
    for name in earlier.keys() & later.keys():
        family = before.surrogates[name].family
        found[family].append(math.log(later[name] / earlier[name]))
    return {family: fmean(sorted(values)) for family, values in sorted(found.items())}


def limits(runs: Iterable[Run]) -> dict[str, float]:
    """By resource family, the shift (in logs) from which on a run of this campaign is marked:
    ``USUAL`` times the median shift of all its runs, and ``CHANGED`` at the least."""
    seen: dict[str, list[float]] = defaultdict(list)
    for run in runs:
        if run.before is not None and run.after is not None:
            for family, value in shift(run.before, run.after).items():
                seen[family].append(abs(value))
    return {family: max(CHANGED, USUAL * median(values)) for family, values in seen.items()}


def changed(run: Run, usual: Mapping[str, float] | None = None) -> bool | None:
    """Whether any family shifted beyond its limit during the run; None where the run lacks a
    fingerprint before or after it. ``usual`` are the campaign's ``limits`` (None: ``CHANGED``)."""
    if run.before is None or run.after is None:
        return None
    allowed = usual or {}
    shifts = shift(run.before, run.after)
    return any(abs(value) > allowed.get(family, CHANGED) for family, value in shifts.items())
