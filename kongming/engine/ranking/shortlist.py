"""The best of many places whose exact scores cost time: which to work out, and when to stop. Pure.

The newcomer's own part of a score is known for every place, and harm to residents only ever adds
to it: so that part is a bound below which the exact score cannot lie. Places are worked out until
no other one's bound lies below what is in the answer.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kongming.arrays import Floats
from kongming.engine.ranking import order
from kongming.steps import Steps

Harm = Callable[[list[int]], Steps[Sequence[tuple[float, float]]]]
"""For each place, what the newcomer adds to the residents' log slowdowns in all (0 or more), and
the greatest log slowdown that one would have."""

FEW = 256
"""Candidates up to which all are worked out that could be in the answer."""

MOST = 4
"""Of more candidates: once so many places with residents were worked out, in addition to those
found first, the estimate decides. Each takes some 50 us; a ranking has a few milliseconds."""

_SPARE = 4
"""Of every so many places that are asked for, one more is worked out at first."""

_BATCH = 16
"""Places that are worked out at once, at the first time; each time twice as many."""


@dataclass(frozen=True, slots=True)
class Place:
    """One that was worked out: its score, and whether it is tied with the first."""

    place: int
    score: float
    tied: bool


@dataclass(frozen=True, slots=True)
class Shortlist:
    """The answer in its order; the places that were worked out and ``refused`` for a resident's
    sake, and those that were not (``sound``); whether the answer is ``proven`` to be what it would
    be had all been worked out."""

    places: tuple[Place, ...]
    sound: tuple[int, ...]
    refused: tuple[int, ...]
    proven: bool


def best(
    newcomer: Floats,
    estimate: Floats,
    allowed: NDArray[np.intp],
    nodes: NDArray[np.int32],
    residents: NDArray[np.intp],
    *,
    weights: tuple[float, float],
    limit: int,
    most_harmed: float,
    tolerance: float,
    harm: Harm,
    random: np.random.Generator,
    most: int | None = None,
) -> Steps[Shortlist]:
    """Select, in steps, the ``limit`` best of ``allowed``, each node once.

    ``newcomer`` (places,) is its log slowdown, ``estimate`` (places,) of what is added to the
    residents', ``residents`` (places,) how many there are: without any nothing is added. Scores
    are the sum of both, weighted; those within ``tolerance`` of the least come first, in a random
    order. No place is returned where a resident would be slowed beyond ``most_harmed``.
    """
    if most is None:
        most = len(newcomer) if len(allowed) <= FEW else MOST
    own, others = weights
    bounds = own * newcomer
    scores = bounds + others * estimate
    scored: dict[int, float] = {}
    refused: list[int] = []
    left = np.zeros(len(newcomer), dtype=np.bool_)
    left[allowed] = True
    spent = 0

    def work_out(places: list[int]) -> Steps[None]:
        nonlocal spent
        left[places] = False
        spent += int(np.count_nonzero(residents[places]))
        exact = yield from harm(places)
        for place, (added, worst) in zip(places, exact, strict=True):
            if worst > most_harmed:
                refused.append(place)
            else:
                scored[place] = float(bounds[place]) + others * added

    wanted = limit + math.ceil(limit / _SPARE)
    ordered = order.in_order(scores, allowed, nodes, tolerance, wanted, random)
    yield from work_out(list(itertools.islice(ordered, wanted)))
    spent = 0
    size = min(_BATCH, most)
    while True:
        of_node = _of_nodes(scored, nodes)
        ceiling = _ceiling([scored[place] for place in of_node], limit, tolerance)
        open_ = np.flatnonzero(left & (bounds < ceiling))
        if not len(open_) or spent >= most:
            break
        # The most promising first: each good one that is found closes others.
        if len(open_) > size:
            open_ = open_[np.argpartition(scores[open_], size - 1)[:size]]
        yield from work_out(open_.tolist())
        size *= 2
    shuffled = random.permutation(np.array(of_node, dtype=np.intp)).tolist()
    chosen, tied = order.settle([scored[p] for p in shuffled], tolerance, limit)
    return Shortlist(
        tuple(
            Place(shuffled[i], scored[shuffled[i]], is_tied)
            for i, is_tied in zip(chosen, tied, strict=True)
        ),
        tuple(scored),
        tuple(refused),
        not len(open_),
    )


def _of_nodes(scored: dict[int, float], nodes: NDArray[np.int32]) -> list[int]:
    """The best place of each node."""
    chosen: dict[int, int] = {}
    for place, score in scored.items():
        node = int(nodes[place])
        if node not in chosen or score < scored[chosen[node]]:
            chosen[node] = place
    return list(chosen.values())


def _ceiling(scores: list[float], limit: int, tolerance: float) -> float:
    """A place whose score is no lower than this changes nothing."""
    if len(scores) < limit:
        return math.inf
    ordered = sorted(scores)
    # Enough are tied with the first: only a better first one could change who is.
    return ordered[0] if ordered[limit - 1] <= ordered[0] + tolerance else ordered[limit - 1]
