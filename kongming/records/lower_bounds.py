"""Costs of runs that were ended before their program was are lower bounds. Pure."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence

from kongming.records.run import Run


def completed(logs: Sequence[float], cut_off: Sequence[bool]) -> tuple[list[float], list[bool]]:
    """Return log costs of one program with the mean of those above it in the place of each that was
    ``cut_off`` (Efron 1967, redistribution to the right: each complete run is as likely), and which
    remain lower bounds, as none is above."""
    complete = [log for log, cut in zip(logs, cut_off, strict=True) if not cut]
    values, bounds = list(logs), list(cut_off)
    for place, log in enumerate(logs):
        above = [other for other in complete if other > log] if cut_off[place] else []
        if above:
            values[place], bounds[place] = statistics.fmean(above), False
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
