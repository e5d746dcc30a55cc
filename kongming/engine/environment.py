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

What of it is within the spread of readings on that idle node may be noise. Of several that are
added, or taken out, together only the greatest of these parts counts: they would add up to
something though nobody presses on anything (``learning.colocation.compose``). One alone counts as
it was measured.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
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


@dataclass(frozen=True, eq=False, slots=True)
class Environments:
    """Environments that a ``newcomer`` meets, (C,), and ``each`` of n assignments itself, (n, C);
    ``noise`` (C,) and ``each_noise`` (n, C) are the parts of what was added to these that may be
    noise, by which whoever is added then adds less (``added``)."""

    newcomer: Floats
    each: Floats
    noise: Floats
    each_noise: Floats


def added(pressure: Floats, spread: Floats, noise: Floats) -> Floats:
    """Return what one more neighbour adds, in the shape of these arrays: all of its ``pressure``
    but what it has within its ``spread`` and is among the ``noise`` of those before it."""
    return np.asarray(pressure - np.minimum(np.minimum(pressure, spread), noise))


def added_up(pressures: Floats, spreads: Floats, noise: Floats) -> Floats:
    """Return, (C,), what n neighbours add together, of ``pressures`` and ``spreads`` (n, C), to
    whom added ``noise`` (C,) before; it is at most ``LARGEST_LOG``, however many there are."""
    noises = np.minimum(pressures, spreads)
    most = np.maximum(noises.max(axis=0, initial=0.0), noise)
    total = pressures.sum(axis=0) - ((noises.sum(axis=0) + noise) - most)
    return np.asarray(np.minimum(total, LARGEST_LOG))


def met(
    fingerprint: Floats,
    idle: Floats,
    phases: Sequence[Phase],
    pressures: Floats,
    spreads: Floats,
) -> Environments:
    """Return what a newcomer, and what each of n assignments meets.

    ``fingerprint`` and ``idle`` (C,) are log seconds per operation; NaN in ``idle`` is no
    reference, and then nothing bounds what is taken out. ``pressures`` (n, C) are the assignments'
    log slowdowns over idle, 0 or more, and ``spreads`` (n, C) those of readings on that idle node.
    A column that the pressure of one who began lacks (NaN) is unknown to all but itself; one that
    the pressure of one who ended lacks stays as it was read. With a newcomer, what an assignment
    would meet is its row plus what the newcomer has ``added``.
    """
    began, ended, within = (
        [i for i, phase in enumerate(phases) if phase is its]
        for its in (Phase.ADDED, Phase.REMOVED, Phase.WITHIN)
    )
    unknown = np.isnan(pressures)
    known = np.where(unknown, 0.0, pressures)
    plus, noise, minus = np.zeros((3, len(fingerprint)))
    each_plus, each_noise, own = np.zeros((3, *known.shape))
    if began:
        noises = _noises(known[began], spreads[began])
        plus, noise, others_plus, others_noise = _additions(known[began], noises)
        each_plus[:], each_noise[:] = plus, noise
        each_plus[began], each_noise[began] = others_plus, others_noise
        hidden = unknown[began]
        if hidden.any():
            count = hidden.sum(axis=0)
            by_others = np.repeat(count[None, :], len(known), axis=0)
            by_others[began] -= hidden
            plus[count > 0], each_plus[by_others > 0] = math.nan, math.nan
    if within:
        own[within] = known[within]
    if ended:
        noises = _noises(known[ended], spreads[ended])
        minus = added_up(known[ended], noises, minus)
        if within:
            its = _noises(known[within], spreads[within])
            own[within] = added(known[within], its, noises.max(axis=0))
    # Without a reference nothing bounds what is taken out.
    least = np.where(np.isnan(idle), -math.inf, np.minimum(fingerprint, idle))
    return Environments(
        np.maximum(fingerprint - minus, least) + plus,
        np.maximum(fingerprint - (minus + own), least) + each_plus,
        noise,
        each_noise,
    )


def _noises(pressures: Floats, spreads: Floats) -> Floats:
    """Return, of ``pressures``, the parts within ``spreads``, all (n, C); NaN is no spread."""
    return np.asarray(np.minimum(pressures, np.where(np.isnan(spreads), 0.0, spreads)))


def _additions(pressures: Floats, noises: Floats) -> tuple[Floats, Floats, Floats, Floats]:
    """Return what n neighbours, 1 or more, of ``pressures`` and ``noises`` (n, C), add together,
    and the noise of that, both (C,); then the same of all others of each, both (n, C)."""
    if len(pressures) == 1:
        nothing = np.zeros_like(pressures)
        return np.minimum(pressures[0], LARGEST_LOG), noises[0], nothing, nothing
    total, noise = pressures.sum(axis=0), noises.sum(axis=0)
    where = noises.argmax(axis=0), np.arange(noises.shape[1])
    greatest, rest = noises[where], noises.copy()
    rest[where] = 0.0
    of_others = np.repeat(greatest[None, :], len(noises), axis=0)
    of_others[where] = rest.max(axis=0)
    repeated = noise - noises
    repeated -= of_others
    # Not below 0, nor is what others add, where it is so by rounding.
    others = total - pressures
    others -= np.maximum(repeated, 0.0, out=repeated)
    np.minimum(np.maximum(others, 0.0, out=others), LARGEST_LOG, out=others)
    return np.minimum(total - (noise - greatest), LARGEST_LOG), greatest, others, of_others
