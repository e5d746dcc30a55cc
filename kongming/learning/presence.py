"""Presence: how much any neighbour slows a program, whatever the readings show of it.

Next to others programs take a few per cent longer than surrogates account for: clocks are lower,
and hosts share what a guest does not see. The members of a consensus cannot learn that from
readings, and shrinkage by what is not known takes off the rest of it. So a share of the median
slowdown of the program's own runs next to programs, and under inducers that press on no device, is
added next to a neighbour. It is shrunk by its own variance, and a few per cent at most: more than
that is the work of a resource, and has to be shown by readings. A program that no such load slowed
is predicted as before, and so is one without a neighbour.

Only next to neighbours on other cores of the processor, where it was measured. On a shared core,
and by siblings of it, readings show every neighbour that computes; other sockets were not measured.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from kongming.arrays import Floats
from kongming.learning.awake import NO_DEVICE
from kongming.learning.columns import NEIGHBOUR, shrunk_median

SHARE = 1.0 / 3.0
"""What a neighbour slows a program beyond what readings show, over the median under loads."""

MOST = 0.03
"""Greatest log slowdown by presence. Both were chosen on recordings (docs/models.md)."""

MEASURED = "cross-core"
"""The placement in which the recordings have it."""

LEAST_RUNS = 5
"""Minimum number of runs under a load: fewer do not say what is usual."""


def presence(logs: Floats, groups: Sequence[frozenset[str]], placement: str) -> float:
    """Return the log slowdown, 0 or more, that a neighbour that never sleeps adds to what its
    readings show.

    ``logs`` (n,) are the log slowdowns of training runs, ``groups`` (n) the families of the load of
    each, ``neighbour:NAME`` for a program; empty of solo runs.
    """
    if placement != MEASURED:
        return 0.0
    loaded = [i for i, group in enumerate(groups) if group and _presses_on_no_device(group)]
    if len(loaded) < LEAST_RUNS:
        return 0.0
    usual = SHARE * shrunk_median(np.asarray(logs)[loaded].tolist())
    return min(max(usual, 0.0), MOST)


def _presses_on_no_device(group: Iterable[str]) -> bool:
    return all(name in NO_DEVICE or name.startswith(NEIGHBOUR) for name in group)
