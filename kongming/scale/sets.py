"""Which k nodes a job should have: the slowest of them counts, and the harm that all of them do.

Since a barrier waits for the slowest node, the newcomer's part of a set's score is that of its
slowest member, and the residents' part the sum over its members. Both are least, together, for
one of the n sets that hold the k least harmed among all nodes up to some slowdown: so going
through the nodes in the order of their slowdown finds the best set, and no other need be tried.
Without harm that is the k least slowed nodes.
"""

from __future__ import annotations

import heapq
import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kongming.dataset import Floats

__all__ = ["Weights", "best_set", "set_score"]

Places = NDArray[np.intp]


@dataclass(frozen=True, slots=True)
class Weights:
    """Of the slowest newcomer's log slowdown, and of the sum of what is added to the residents'.
    ``tolerance`` is what a node's score may differ by and be as good, in the score's units."""

    newcomer: float = 1.0
    resident: float = 1.0
    tolerance: float = 0.0


def set_score(slowed: Floats, harm: Floats, weights: Weights) -> float:
    """Lower is better. ``slowed`` and ``harm`` (k,) are of the members, in logs."""
    slowest, harmed = float(slowed.max()), float(harm.sum())
    return weights.newcomer * slowest + weights.resident * harmed


def best_set(
    slowed: Floats, harm: Floats, size: int, weights: Weights, lots: Floats
) -> tuple[Places, NDArray[np.bool_]] | None:
    """The members of the best set, least slowed first, and which of them are near ties: others
    would do as well. None with fewer nodes than ``size``.

    ``slowed`` and ``harm`` (n,) are what a node adds to the newcomer's log slowdown and to its
    residents', the latter 0 or more. Near ties are taken by ``lots`` (n,), random numbers, the
    lowest first, so that requests at one time do not herd.
    """
    n = len(slowed)
    if n < size:
        return None
    costs = weights.resident * harm
    threshold = _threshold(slowed, costs, size, weights.newcomer)
    near = weights.tolerance / weights.newcomer if weights.newcomer > 0.0 else 0.0
    pool = np.flatnonzero(slowed <= threshold + near)
    dearest = float(np.partition(costs[pool], size - 1)[size - 1])
    theirs = costs[pool]
    cheap = theirs < dearest - weights.tolerance
    dear = theirs > dearest + weights.tolerance
    fast = slowed[pool] < threshold - near
    group = np.where(cheap, 0, np.where(dear, 3, np.where(fast, 1, 2)))
    order = np.lexsort((lots[pool], np.where(dear, theirs, 0.0), group))[:size]
    chosen, tied = pool[order], group[order] == 2
    # Where all that are near were taken, there was no choice.
    tied = tied & (np.count_nonzero(group == 2) > np.count_nonzero(tied))
    by_slowdown = np.lexsort((chosen, slowed[chosen]))
    return chosen[by_slowdown], tied[by_slowdown]


def _threshold(slowed: Floats, costs: Floats, size: int, weight: float) -> float:
    """The log slowdown of the best set's slowest member."""
    least = float(np.partition(slowed, size - 1)[size - 1])
    if not costs.any():
        return least
    order = np.argsort(slowed, kind="stable")
    values, theirs = slowed[order].tolist(), costs[order].tolist()
    kept = [-cost for cost in theirs[:size]]
    heapq.heapify(kept)
    total = -math.fsum(kept)
    best, found = weight * least + total, least
    for place in range(size, len(values)):
        if weight * values[place] >= best:
            # Harm is never below 0: no later set can be better.
            break
        if -kept[0] > theirs[place]:
            total += theirs[place] + heapq.heapreplace(kept, -theirs[place])
            score = weight * values[place] + total
            if score < best:
                best, found = score, values[place]
    return found
