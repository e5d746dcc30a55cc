"""Presence: how much any neighbour slows a program, whatever the readings show of it.

Next to others programs take a few per cent longer than surrogates account for: clocks are lower,
and hosts share what a guest does not see. The members of a consensus cannot learn that from
readings, and shrinkage by what is not known takes off the rest of it. So what is not known of a
neighbour is taken to be the usual instead of nothing: a share of the median slowdown of the
program's own runs under inducers that press on no device, shrunk by its own variance, and a few per
cent at most, since more than that is the work of a resource and has to be shown by readings. A
program that no such load slowed is predicted as before, and so is one without a neighbour.

Not where a core is shared: there readings show every neighbour that computes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from kongming.arrays import Floats
from kongming.learning.awake import NO_DEVICE
from kongming.learning.columns import shrunk_median

SHARE = 0.5
"""What a neighbour slows a program, over what inducers do that run for that alone."""

MOST = 0.03
"""Greatest log slowdown by presence. Both were chosen on recordings (docs/models.md)."""

LEAST_RUNS = 5
"""Minimum number of runs under a load: fewer do not say what is usual."""

_NEIGHBOUR = "neighbour:"


def presence(logs: Floats, groups: Sequence[frozenset[str]], placement: str) -> float:
    """Return the log slowdown, 0 or more, next to a neighbour that never sleeps and of whose
    pressure nothing is known.

    ``logs`` (n,) are the log slowdowns of training runs, ``groups`` (n) the families of the load of
    each, ``neighbour:NAME`` for a program; empty of solo runs.
    """
    if placement == "same-core":
        return 0.0
    loaded = [i for i, group in enumerate(groups) if group and _presses_on_no_device(group)]
    if len(loaded) < LEAST_RUNS:
        return 0.0
    usual = SHARE * shrunk_median(np.asarray(logs)[loaded].tolist())
    return min(max(usual, 0.0), MOST)


def _presses_on_no_device(group: Iterable[str]) -> bool:
    return all(name in NO_DEVICE or name.startswith(_NEIGHBOUR) for name in group)
