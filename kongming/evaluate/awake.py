"""AWAKE: the solo time, times the factor by which a program that waits runs beside a busy CPU.

A program that waits (for a disk, a socket, a lock) is faster when a neighbour keeps the other CPU
from sleeping: what it waits for is answered sooner. The factor is learned from induced runs whose
load keeps its CPU busy and touches no device. As a predictor it has two numbers per program, and
says that nothing is slowed.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence

from kongming.records.run import Run, solo_time

WAITING = 0.2
"""Share of its solo time off the CPU from which a program has a factor."""

LEAST_RUNS = 3
"""Induced runs that a factor needs."""

FAMILIES = frozenset({"compute", "cache", "memory", "os"})
"""Resource families of loads that keep a CPU busy and touch no device."""


def waiting_share(runs: Iterable[Run]) -> float:
    """Median share of its solo runs' time that a program is off the CPU; 0 without any."""
    shares = [
        1.0 - min(run.usage.cpu_s / run.wall_s, 1.0)
        for run in runs
        if run.kind == "solo" and run.ok and run.wall_s > 0.0
    ]
    return statistics.median(shares) if shares else 0.0


def keeps_awake(run: Run) -> bool:
    """Whether a run was under a load that kept its CPU busy all the time, without a device."""
    return (
        run.kind == "induced"
        and run.ok
        and bool(run.levels)
        and all(level.intensity == 1.0 and level.family in FAMILIES for level in run.levels)
    )


def log_awake_factor(runs: Sequence[Run]) -> float:
    """Log of the factor, 0 or below: 0 for a program that hardly waits, or without enough runs.

    It is the median log slowdown of the runs that ``keeps_awake`` selects, drawn to 0 by the share
    of its square that is its own standard error's.
    """
    solo = solo_time(runs)
    logs = [math.log(run.cost) for run in runs if keeps_awake(run)]
    if solo is None or len(logs) < LEAST_RUNS or waiting_share(runs) < WAITING:
        return 0.0
    faster = min(0.0, statistics.median(logs) - math.log(solo.median))
    # The median of n normal values has sqrt(pi / 2) times the standard error of their mean.
    variance = math.pi / 2.0 * statistics.variance(logs) / len(logs)
    return faster**3 / (faster**2 + variance) if faster else 0.0


def awake_slowdowns(profiles: Mapping[str, Sequence[Run]]) -> dict[tuple[str, str], float]:
    """Predicted slowdown of each ordered pair of programs, by the runs of their profiles: a
    neighbour that itself waits keeps the CPU awake for the rest of its time only."""
    factors = {app: log_awake_factor(runs) for app, runs in profiles.items()}
    busy = {app: 1.0 - waiting_share(runs) for app, runs in profiles.items()}
    return {
        (app, other): math.exp(factors[app] * busy[other])
        for app in profiles
        for other in profiles
        if app != other
    }
