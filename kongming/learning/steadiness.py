"""Detection of changes of the node during a run, from the quick fingerprints around it. Pure."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping
from statistics import fmean, median

from kongming.records.fingerprint import Fingerprint
from kongming.records.run import Run

CHANGED = math.log(1.25)
"""Log shift of a resource family above which it has changed: slower or faster by a quarter."""

USUAL = 3.0
"""Multiple of the usual shift above which a shift counts: some families have noisy readings."""


def shift(before: Fingerprint, after: Fingerprint) -> dict[str, float]:
    """Return by resource family the mean of log(after / before) over the surrogates that both
    have.
    """
    earlier, later = before.times(), after.times()
    by_family: dict[str, list[float]] = defaultdict(list)
    for name in earlier.keys() & later.keys():
        family = before.surrogates[name].family
        by_family[family].append(math.log(later[name] / earlier[name]))
    return {family: fmean(sorted(values)) for family, values in sorted(by_family.items())}


def limits(runs: Iterable[Run]) -> dict[str, float]:
    """Return by resource family the shift (in logs) above which a run of this campaign is marked:
    ``USUAL`` times the median shift of all its runs, at least ``CHANGED``."""
    seen: dict[str, list[float]] = defaultdict(list)
    for run in runs:
        if run.before is not None and run.after is not None:
            for family, value in shift(run.before, run.after).items():
                seen[family].append(abs(value))
    return {family: max(CHANGED, USUAL * median(values)) for family, values in seen.items()}


def changed(run: Run, usual: Mapping[str, float] | None = None) -> bool | None:
    """Return whether any family shifted beyond its limit during the run; None if the run has no
    fingerprint before or after it. ``usual`` are the campaign's ``limits`` (None: ``CHANGED``)."""
    if run.before is None or run.after is None:
        return None
    allowed = usual or {}
    shifts = shift(run.before, run.after)
    return any(abs(value) > allowed.get(family, CHANGED) for family, value in shifts.items())
