"""Sets of nodes for a job, from the scores of all places."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kongming.arrays import Floats
from kongming.engine.ranking.shortlist import Harm
from kongming.scale.decide.node_sets import Weights, best_set, set_score
from kongming.steps import Steps

_SPARE = 16
"""Places beyond those asked for, and a quarter of these, that are worked out in full at once: the
estimate of harm that they were found by may have been wrong."""

_MOST_TRIED = 256
"""Places beyond those asked for that a limit on residents turns down; beyond that the estimate
decides."""


@dataclass(frozen=True, eq=False, slots=True)
class Chosen:
    """A set's places, least slowed first: which of them are near ties, and what each adds to
    its residents' log slowdowns."""

    places: list[int]
    tied: list[bool]
    harm: list[float]
    score: float


def _one_of_each_node(
    slowed: Floats,
    harm: Floats,
    allowed: NDArray[np.intp],
    nodes: NDArray[np.int32],
    weights: Weights,
) -> NDArray[np.intp]:
    """The best place of each node."""
    if not len(allowed) or np.bincount(nodes[allowed]).max() == 1:
        return allowed
    scores = weights.newcomer * slowed[allowed] + weights.resident * harm[allowed]
    order = allowed[np.argsort(scores, kind="stable")]
    _, firsts = np.unique(nodes[order], return_index=True)
    return order[firsts]


def choose_sets(
    slowed: Floats,
    harm: Floats,
    allowed: NDArray[np.intp],
    nodes: NDArray[np.int32],
    *,
    size: int,
    limit: int,
    weights: Weights,
    most_harmed: float,
    exact: Harm,
    random: np.random.Generator,
) -> Steps[tuple[list[Chosen], list[int]]]:
    """Choose, in steps, ``limit`` disjoint sets of ``size`` nodes, best first; and the places that
    were refused because a resident would be slowed beyond ``most_harmed`` (a log slowdown).

    ``slowed`` and ``harm`` (places,) are estimates for all; ``allowed`` are the candidates, and
    ``nodes`` (places,) whose they are: the best place of a node stands for it. Harm is worked out
    for those that are chosen, who are chosen again until it is as it was taken to be.
    """
    left = _one_of_each_node(slowed, harm, allowed, nodes, weights)
    left = left[np.argsort(slowed[left])]
    lots = random.random(len(slowed))
    harm = harm.copy()
    known: set[int] = set()
    refused: list[int] = []
    chosen: list[Chosen] = []
    tried = 0
    mine, its_lots = slowed[left], lots[left]

    def leave_out(places: NDArray[np.intp] | list[int]) -> None:
        nonlocal left, mine, its_lots
        left = left[~np.isin(left, places)]
        mine, its_lots = slowed[left], lots[left]

    while len(chosen) < limit:
        yield
        costs = harm[left]
        best = best_set(mine, costs, size, weights, its_lots)
        if best is None:
            break
        places = left[best[0]]
        if any(place not in known for place in places.tolist()):
            spare = min(size + size // 4 + _SPARE, len(left))
            wider = best_set(mine, costs, spare, weights, its_lots)
            shortlist = [*places.tolist(), *(() if wider is None else left[wider[0]].tolist())]
            new = [place for place in dict.fromkeys(shortlist) if place not in known]
            over = []
            for place, (added, most) in zip(new, (yield from exact(new)), strict=True):
                harm[place] = added
                known.add(place)
                if most > most_harmed and tried <= size + _MOST_TRIED:
                    over.append(place)
            tried += len(new)
            refused += over
            if over:
                leave_out(over)
            continue
        # That sort leaves the order of equals open.
        order = np.lexsort((places, slowed[places]))
        places = places[order]
        chosen.append(
            Chosen(
                places.tolist(),
                best[1][order].tolist(),
                harm[places].tolist(),
                set_score(slowed[places], harm[places], weights),
            )
        )
        if len(chosen) < limit:
            leave_out(places)
    return chosen, refused
