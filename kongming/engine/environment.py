"""Meaning of a fingerprint where residents run. Pure: vectors of log seconds per operation.

A live fingerprint already holds the pressure of whoever ran when it was taken, so nothing is
added to it that it has seen:

    a newcomer meets   the fingerprint, plus those that began after it (or are reserved and have
                       not begun), minus those that have ended since
    a resident meets   the same without itself (a program does not feel its own pressure, the
                       probe does), plus the newcomer

A signature enters as the log slowdown over the idle reference of the node that it was taken on:
so it carries to other nodes. It is never negative, and taking one out never leaves a surrogate
faster than on the idle node (or than it was read, where that was faster still).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from enum import Enum

import numpy as np

from kongming.arrays import Floats
from kongming.records.resident import Resident

LARGEST_LOG = math.log(1e4)
"""No slowdown is taken to be greater, in logs: numbers that one node reports must not grow beyond
what can be worked with."""


def ratio_of(log_slowdown: float) -> float:
    """The slowdown of a log slowdown, within bounds."""
    return math.exp(min(max(log_slowdown, -LARGEST_LOG), LARGEST_LOG))


class Phase(Enum):
    """Phase of an assignment relative to a fingerprint."""

    WITHIN = "runs, and ran when the fingerprint was taken"
    ADDED = "runs or will, and began after it"
    REMOVED = "ran when it was taken, and has ended"
    ABSENT = "neither ran when it was taken nor does now"


def phase(resident: Resident, taken_at: float | None) -> Phase:
    """``taken_at`` None is an idle reference, in which no program ran."""
    began, ended = resident.bound_at, resident.ended_at
    seen = (
        taken_at is not None
        and began is not None
        and began <= taken_at
        and (ended is None or ended > taken_at)
    )
    if resident.active:
        return Phase.WITHIN if seen else Phase.ADDED
    return Phase.REMOVED if seen else Phase.ABSENT


def met(
    fingerprint: Floats, idle: Floats, phases: Sequence[Phase], pressures: Floats
) -> tuple[Floats, Floats]:
    """Return what a newcomer meets, (C,), and what each of n assignments meets itself, (n, C).

    ``fingerprint`` and ``idle`` (C,) are log seconds per operation; NaN in ``idle`` is no
    reference, and then nothing bounds what is taken out. ``pressures`` (n, C) are the assignments'
    log slowdowns over idle, 0 or more. A column that the pressure of one who began lacks (NaN) is
    unknown to all but itself; one that the pressure of one who ended lacks stays as it was read.
    With a newcomer, what an assignment would meet is its row plus the newcomer's pressure.
    """
    unknown = np.isnan(pressures)
    known = np.where(unknown, 0.0, pressures)
    added, removed, within = (
        np.array([phase is its for phase in phases], dtype=np.float64)[:, None]
        for its in (Phase.ADDED, Phase.REMOVED, Phase.WITHIN)
    )
    plus, minus = (added * known).sum(axis=0), (removed * known).sum(axis=0)
    # However many residents there are.
    plus = np.minimum(plus, LARGEST_LOG)
    hidden = (added * unknown).sum(axis=0)
    return (
        _corrected(fingerprint, idle, np.where(hidden > 0.0, np.nan, plus), minus),
        _corrected(
            fingerprint,
            idle,
            np.where(hidden - added * unknown > 0.0, np.nan, np.maximum(plus - added * known, 0.0)),
            minus + within * known,
        ),
    )


def _corrected(fingerprint: Floats, idle: Floats, plus: Floats, minus: Floats) -> Floats:
    lowered = fingerprint - minus
    least = np.where(np.isnan(idle), lowered, np.minimum(fingerprint, idle))
    return np.asarray(np.maximum(lowered, least) + plus, dtype=np.float64)
