"""Costs of runs that were ended before their program was are lower bounds. Pure."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence

from kongming.records.run import Run


def completed(logs: Sequence[float], cut_off: Sequence[bool]) -> tuple[list[float], list[bool]]:
    """Return log costs of one program with the mean of those above it in the place of each that was
    ``cut_off`` (Efron 1967, redistribution to the right: it is as likely as long as any that is
    known to be longer), and which remain lower bounds, as no complete one is above. These are among
    those above others: without them, what was cut off early would be learned as the quickest of
    those that were let go on."""
    complete = [log for log, cut in zip(logs, cut_off, strict=True) if not cut]
    longest = max(complete, default=-math.inf)
    values, bounds = (
        list(logs),
        [cut and log >= longest for log, cut in zip(logs, cut_off, strict=True)],
    )
    known = [log for log, cut, bound in zip(logs, cut_off, bounds, strict=True) if bound or not cut]
    for place, log in enumerate(logs):
        if cut_off[place] and not bounds[place]:
            values[place] = statistics.fmean(other for other in known if other > log)
    return values, bounds


def completed_costs(runs: Iterable[Run]) -> list[float]:
    """Return the costs of successful runs of one program, ``completed``."""
    known = list(runs)
    logs = [math.log(run.cost) for run in known]
    values, _ = completed(logs, [run.cut_off for run in known])
    # A cost that was measured stays what it is, to the last digit.
    return [
        math.exp(value) if value != log else run.cost
        for run, log, value in zip(known, logs, values, strict=True)
    ]
