"""The awake factor: how much faster a program that waits runs next to a CPU that does not sleep.

A program that waits for a device is woken by an interrupt. On an idle node its CPU, and the others
that share its power state, sleep meanwhile and take long to wake; next to a neighbour that computes
they do not, and each wait ends sooner. The effect is seen in the program's own runs under inducers
that never pause and press on no device: their median slowdown is below 1.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from kongming.arrays import Floats
from kongming.learning.columns import shrunk_median
from kongming.records.fingerprint import Fingerprint
from kongming.records.run import WAITING_SHARE, Run, Signature

_Share = TypeVar("_Share", float, Floats)

WAITS = 0.2
"""A program that is off its processor for at least this share of its solo time waits."""

LEAST_RUNS = 3
"""Minimum number of runs next to an inducer at full duty: fewer prove no effect."""

NO_DEVICE = frozenset({"compute", "cache", "memory", "os"})
"""Families whose inducers keep their CPU busy and press on no device."""


def keeps_awake(run: Run) -> bool:
    """Return whether the run's load keeps its CPU awake and presses on no device."""
    return bool(run.levels) and all(
        level.intensity == 1.0 and level.family in NO_DEVICE for level in run.levels
    )


def keeping_awake(runs: Sequence[Run]) -> NDArray[np.intp]:
    """Return the positions of the runs that ``keeps_awake``."""
    return np.array([i for i, run in enumerate(runs) if keeps_awake(run)], dtype=np.intp)


def awake_shares(runs: Sequence[Run]) -> Floats:
    """Return (n,): for which share of each run, 0 to 1, its load kept a CPU awake. A program as a
    load does while it does not wait, by its signature, the fingerprint of the run."""
    return np.array([_awake_share(run) for run in runs], dtype=np.float64)


def _awake_share(run: Run) -> float:
    if run.kind == "induced" and run.neighbours and run.fingerprint is not None:
        return 1.0 - _waiting(run.fingerprint)
    return float(keeps_awake(run))


def awake_factor(logs: Floats, waiting: float | None) -> float:
    """Return the log slowdown, 0 or less, of a program whose neighbour never sleeps.

    ``logs`` (n,) are the log slowdowns of the runs that ``keeping_awake`` names, ``waiting`` the
    share of solo time that the program is off its processor. It is the median, shrunk by its own
    variance; 0 for a program that does not wait, or with too few runs.
    """
    if waiting is None or waiting < WAITS or len(logs) < LEAST_RUNS:
        return 0.0
    return min(shrunk_median(logs.tolist()), 0.0)


def awake_share(signatures: Sequence[Signature]) -> float:
    """Return the share of time in which the program of these signatures keeps a CPU awake. One
    whose signatures do not say counts as never waiting, as most programs do."""
    waits = [_waiting(signature.fingerprint) for signature in signatures]
    return 1.0 - math.fsum(waits) / len(waits) if waits else 0.0


def _waiting(fingerprint: Fingerprint) -> float:
    """Return the share of time that the program of a signature waits; 0 if it does not say."""
    return min(max(fingerprint.passive.get(WAITING_SHARE, 0.0), 0.0), 1.0)


def together(shares: Iterable[_Share]) -> _Share:
    """Return the share of time in which at least one of several programs keeps a CPU awake, if
    they wait independently of each other. Arrays of shares are combined entry by entry."""
    asleep: Any = math.prod(1.0 - share for share in shares)
    awake: _Share = 1.0 - asleep
    return awake


def with_awake_factor(log_slowdown: Floats, factor: float, share: Floats) -> Floats:
    """Return log slowdowns (n,) next to neighbours that are awake for ``share`` (n,) of the time.

    What a model says of the pressure is 0 or more, since no pressure makes a program faster; the
    awake ``factor``, 0 or less, is added to it. Where ``share`` is NaN there is no neighbour, and
    ``log_slowdown`` (n,) stands as it is.
    """
    alone = np.isnan(share)
    near = np.maximum(log_slowdown, 0.0)
    if factor:
        near += factor * np.where(alone, 0.0, share)
    return np.asarray(np.where(alone, log_slowdown, near), dtype=np.float64)
