"""Slow machines of a type: which, how sure, and what dropping them gains.

Ernest (NSDI 2016), section 4.3: launch some more, measure memory and network, drop the slowest.
Here the surrogates choose, and the programs say what the choice is worth.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import log, sqrt

import numpy as np
from scipy import special

from kongming.audit.intervals import Bounds
from kongming.audit.multiple import holm
from kongming.dataset import Floats
from kongming.errors import CannotAnswerError, InputError
from kongming.scale.overallocation import Dropping, Extra, drop_slowest, extra_machines, slowness

__all__ = [
    "MACHINES_FOR_SLOW",
    "Difference",
    "Drop",
    "choosing",
    "differences",
    "dropped",
    "extras",
]

MACHINES_FOR_SLOW = 3

TOLERANCE = 0.05
"""A machine is slow where a median is more than so much over the typical one's."""

PREFIXES = ("memory.", "stream.", "net.")
"""Surrogates of memory and network, which Ernest chooses by."""


@dataclass(frozen=True, slots=True)
class Difference:
    """A machine's median over that of the typical machine, for one name; ``p`` that it is no more
    than ``TOLERANCE`` above it, adjusted (Holm) over all machines and names of the type."""

    machine: str
    name: str
    ratio: float
    p: float
    slow: bool


@dataclass(frozen=True, slots=True)
class Drop:
    """``by`` surrogates: what was dropped and what that gains there; ``programs`` the same nodes'
    gain in the programs: the share that the slowest kept machine is faster than the slowest of as
    many drawn at random, averaged over programs; None without programs."""

    by: Dropping
    slowness: Mapping[str, float]
    program_gain: float | None
    program_mean_gain: float | None


def choosing(names: Sequence[str]) -> tuple[str, ...]:
    """The surrogates to choose by: memory and network, or all where there are none of these."""
    chosen = tuple(name for name in names if name.startswith(PREFIXES))
    return chosen or tuple(names)


def differences(
    costs: Mapping[str, Mapping[str, float]],
    intervals: Mapping[str, Mapping[str, Bounds]],
    confidence: float,
) -> list[Difference]:
    """Costs (less is better) by machine and name, with their intervals."""
    found: list[tuple[str, str, float, float]] = []
    normal = float(special.ndtri(0.5 + confidence / 2.0))
    names = dict.fromkeys(name for own in costs.values() for name in own)
    for name in names:
        own = {m: costs[m][name] for m in costs if name in costs[m]}
        if len(own) < MACHINES_FOR_SLOW:
            continue
        errors = {m: _error(intervals[m].get(name), normal) for m in own}
        for machine, value in own.items():
            # The typical one is the median of the others: a slow one cannot move it.
            others: Floats = np.array([own[m] for m in own if m != machine])
            typical = float(np.median(others))
            ratio = value / typical
            error = errors[machine]
            if error is None:
                p = 1.0
            else:
                known = [e for m, e in errors.items() if m != machine and e is not None]
                rest = float(np.median(known)) / sqrt(len(known)) if known else 0.0
                deviation = sqrt(error**2 + rest**2)
                gap = log(ratio) - log(1.0 + TOLERANCE)
                p = float(special.ndtr(-gap / deviation)) if deviation > 0 else float(gap <= 0)
            found.append((machine, name, ratio, p))
    adjusted = holm([one[3] for one in found])
    return [
        Difference(machine, name, ratio, float(p), bool(p <= 1.0 - confidence))
        for (machine, name, ratio, _), p in zip(found, adjusted, strict=True)
    ]


def dropped(
    surrogates: Mapping[str, Mapping[str, float]],
    programs: Mapping[str, Mapping[str, float]],
    keep: int,
) -> Drop:
    """Keep the ``keep`` fastest by surrogates (cost by machine and name).

    Raises:
        InputError: the machines have no reading in common.
    """
    slow = slowness(surrogates)
    chosen = drop_slowest(slow, keep)
    worst, mean = [], []
    for name in dict.fromkeys(name for own in programs.values() for name in own):
        own = {m: programs[m][name] for m in slow if name in programs.get(m, {})}
        if len(own) < len(slow):
            continue
        best = drop_slowest(own, keep)
        after = np.array([own[m] for m in chosen.kept])
        worst.append(1.0 - float(after.max()) / best.worst_before)
        mean.append(1.0 - float(after.mean()) / float(np.mean(list(own.values()))))
    return Drop(
        chosen,
        slow,
        float(np.mean(worst)) if worst else None,
        float(np.mean(mean)) if mean else None,
    )


def extras(slow: Mapping[str, float], wanted: int, target: float) -> Extra | None:
    """How many more to launch of machines like these; None where no number will do."""
    try:
        return extra_machines(list(slow.values()), wanted, target=target)
    except (CannotAnswerError, InputError):
        return None


def _error(bounds: Bounds, normal: float) -> float | None:
    """Standard error of the log of a median, from its interval."""
    if bounds is None or bounds[0] <= 0.0:
        return None
    return log(bounds[1] / bounds[0]) / (2.0 * normal)
