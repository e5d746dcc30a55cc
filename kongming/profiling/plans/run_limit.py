"""The time after which a run under load is ended although its program still runs. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from statistics import median

MOST_SLOWDOWN = 5.0
"""A run under load is ended at so many times the program's runtime alone, as a lower bound, once
its program's patience is used up."""

LONGEST_SLOWDOWN = 30.0
"""Even with patience left a run is ended at so many times its program's runtime alone."""

PATIENCE = 60.0
"""How long a program's runs under load may go on beyond ``MOST_SLOWDOWN`` together, in runtimes
alone. Those that end tell how slow the others would have been: a program that waits its turn
behind a busy neighbour each time it wakes takes more than ten times as long."""

LEAST_PATIENCE_S = 1.0
"""How much longer than alone each run may take: what ends within it was not worth ending."""


def limit_s(alone: Sequence[float], overtime_s: float, load_left_s: float = math.inf) -> float:
    """Return after how many seconds a run under load is ended, from its program's runtimes
    ``alone`` and what its runs under load have taken beyond the usual limit so far.

    A run that went on while its load ended says nothing. So it ends before that
    (``load_left_s``), where that is no earlier than the usual limit: a shorter one would be no
    bound worth having, and the run may yet end in time."""
    usual = usual_limit_s(alone)
    patience = max(PATIENCE * median(alone) - overtime_s, 0.0)
    limit = min(usual + patience, max(usual, LONGEST_SLOWDOWN * median(alone)))
    return min(limit, max(load_left_s, usual))


def overtime_s(alone: Sequence[float], wall_s: float) -> float:
    """Return what a run under load of ``wall_s`` took beyond the usual limit."""
    return max(wall_s - usual_limit_s(alone), 0.0)


def usual_limit_s(alone: Sequence[float]) -> float:
    """Return after how many seconds it is ended without any patience left."""
    return max(MOST_SLOWDOWN * median(alone), median(alone) + LEAST_PATIENCE_S)


def most_overtime(alone_s: float, rates: Iterable[float]) -> tuple[float, float]:
    """Return for how many seconds the runs of a program may go on beyond the usual limit together,
    and what their loads do at most in that time, one load of these ``rates`` (per second) a run."""
    left, done = PATIENCE * alone_s, 0.0
    each = max(LONGEST_SLOWDOWN * alone_s - usual_limit_s([alone_s]), 0.0)
    for rate in sorted(rates, reverse=True):
        done += rate * min(each, left)
        left -= min(each, left)
    return PATIENCE * alone_s - left, done
