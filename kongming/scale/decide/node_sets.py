"""Choice of k nodes for a job: by the slowdown of the slowest node and the harm to all residents.

Since a barrier waits for the slowest node, the newcomer's part of a set's score is that of its
slowest member, and the residents' part the sum over its members. The best score is that of one of n
sets: the k nodes with the least harm among all nodes up to some slowdown. One pass over the nodes
in order of slowdown therefore finds the best set. Without harm it is the k nodes with the least
slowdown.
"""

from __future__ import annotations

import heapq
import itertools
import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kongming.arrays import Floats

Places = NDArray[np.intp]

_GROWTH = 1.5
"""Ratio of successive numbers of nodes in the coarse search for the best set."""

_ROUNDING = 1e-9
"""Scores that differ by less than this are equal except for rounding."""


@dataclass(frozen=True, slots=True)
class Weights:
    """Weights of the slowest newcomer's log slowdown, and of the sum of the residents' increases.
    Nodes whose scores differ by at most ``tolerance``, in the score's units, are equally good."""

    newcomer: float = 1.0
    resident: float = 1.0
    tolerance: float = 0.0


def set_score(slowed: Floats, harm: Floats, weights: Weights) -> float:
    """Return the score of a set; lower is better. ``slowed`` and ``harm`` (k,) are of the members,
    in logs.
    """
    slowest, harmed = float(slowed.max()), float(harm.sum())
    return weights.newcomer * slowest + weights.resident * harmed


def best_set(
    slowed: Floats, harm: Floats, size: int, weights: Weights, lots: Floats
) -> tuple[Places, NDArray[np.bool_]] | None:
    """Return the members of the best set, least slowed first, and which of them are near ties:
    others are equally good. None with fewer nodes than ``size``.

    ``slowed`` and ``harm`` (n,) are the increases of the newcomer's and of the residents' log
    slowdown on each node, the latter 0 or more. Near ties are ordered by ``lots`` (n,), random
    numbers, so that simultaneous requests do not all choose the same node. It is faster if
    ``slowed`` is in ascending order.
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
    # Enough nodes cost at most as much as the most expensive member of the cheapest set.
    pool = pool[theirs <= dearest + weights.tolerance]
    cheap = costs[pool] < dearest - weights.tolerance
    fast = slowed[pool] < threshold - near
    group = np.where(cheap, 0, np.where(fast, 1, 2))
    # Random numbers are below 1, so groups stay in order.
    order = np.argpartition(group + lots[pool], size - 1)[:size]
    chosen, tied = pool[order], group[order] == 2
    # If all near ties were taken, there was no choice.
    tied = tied & (np.count_nonzero(group == 2) > np.count_nonzero(tied))
    by_slowdown = np.lexsort((chosen, slowed[chosen]))
    return chosen[by_slowdown], tied[by_slowdown]


def _threshold(slowed: Floats, costs: Floats, size: int, weight: float) -> float:
    """Return the log slowdown of the best set's slowest member. The least total harm among the
    nodes up to a slowdown falls as this slowdown rises. So between two slowdowns the score is at
    least the slowdown part of the first plus the total harm of the second. Each node in between is
    tried only if this bound is below the best score of a coarse grid.
    """
    values, theirs = slowed, costs
    if (values[1:] < values[:-1]).any():
        order = np.argsort(slowed, kind="stable")
        values, theirs = slowed[order], costs[order]
    least = float(values[size - 1])
    if not costs.any():
        return least
    ends = _grid(size, len(values))
    cheapest = _cheapest(theirs, ends, size)
    totals = [float(cheap.sum()) for cheap in cheapest]
    bound = min(weight * float(values[end - 1]) + t for end, t in zip(ends, totals, strict=True))
    best, threshold = weight * least + totals[0], least
    for start, end, total, cheap in zip(ends, ends[1:], totals[1:], cheapest, strict=False):
        if weight * float(values[start]) + total > bound + _ROUNDING:
            continue
        score, value = _scan(values, theirs, start, end, cheap, weight)
        if score < best:
            best, threshold = score, value
    return threshold


def _grid(size: int, count: int) -> list[int]:
    """Return numbers of nodes from ``size`` to ``count`` in geometric steps."""
    ends = [size]
    while ends[-1] < count:
        ends.append(min(max(ends[-1] + 1, int(ends[-1] * _GROWTH)), count))
    return ends


def _cheapest(costs: Floats, ends: list[int], size: int) -> list[Floats]:
    """Return, for each of ``ends``, the first of which is ``size``, the ``size`` lowest of the
    costs up to it, in any order."""
    lowest = costs[:size]
    cheapest = [lowest]
    for start, end in itertools.pairwise(ends):
        more = costs[start:end]
        more = more[more < lowest.max()]
        if len(more):
            lowest = np.partition(np.concatenate([lowest, more]), size - 1)[:size]
        cheapest.append(lowest)
    return cheapest


def _scan(
    values: Floats, costs: Floats, start: int, end: int, cheapest: Floats, weight: float
) -> tuple[float, float]:
    """Return the best score, and its slowest member's log slowdown, of the sets whose slowest
    member is one of the nodes ``start`` to ``end`` in the order of ``values``; ``cheapest`` are the
    costs of the cheapest set before them."""
    heap = (-cheapest).tolist()
    heapq.heapify(heap)
    total = -math.fsum(heap)
    best, slowest = math.inf, math.inf
    # Other nodes replace no member: with them the set is only slower.
    cheaper = start + np.flatnonzero(costs[start:end] < -heap[0])
    for value, cost in zip(values[cheaper].tolist(), costs[cheaper].tolist(), strict=True):
        if -heap[0] > cost:
            total += cost + heapq.heapreplace(heap, -cost)
            score = weight * value + total
            if score < best:
                best, slowest = score, value
    return best, slowest
