"""The order of places: scores, constraints, and ties that are spread. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from kongming.arrays import Floats

REASONS = (
    "",
    "suspect",
    "silent",
    "no_fingerprint",
    "stale",
    "unpredictable",
    "memory",
    "slowdown_limit",
    "resident_slowdown_limit",
)
"""Why a place is refused, by code; 0 is not refused. The first that applies counts."""

_CODES = {reason: code for code, reason in enumerate(REASONS)}


def code(reason: str) -> int:
    return _CODES[reason]


def refuse(codes: NDArray[np.int8], where: NDArray[np.bool_], reason: str) -> None:
    """Refuse the places that nothing has refused yet."""
    codes[where & (codes == 0)] = _CODES[reason]


def scores(
    newcomer: Floats, harm: Floats, newcomer_weight: float, resident_weight: float
) -> Floats:
    """(n,), lower is better: the weighted sum of the newcomer's log slowdown and of what is added
    to the residents' log slowdowns."""
    return newcomer_weight * newcomer + resident_weight * harm


def in_order(
    scores: Floats,
    allowed: NDArray[np.intp],
    nodes: NDArray[np.int32],
    tolerance: float,
    wanted: int,
    random: np.random.Generator,
) -> Iterator[int]:
    """Places in the order in which they should be tried, each node once.

    Those within ``tolerance`` of the best come first, in random order, so that a burst of
    requests does not pile up on one of many that are alike; then the others, best first.
    ``wanted`` is how many will likely be taken: they are found without sorting all.
    """
    if not len(allowed):
        return
    theirs = scores[allowed]
    near = theirs <= theirs.min() + tolerance
    tied, rest = allowed[near], allowed[~near]
    seen: set[int] = set()
    # A few are picked at a time: of thousands of ties most are never asked for.
    yield from _once(_shuffled(tied, wanted, random), nodes, seen)
    yield from _once(_sorted(rest, scores, wanted), nodes, seen)


def settle(scores: Sequence[float], tolerance: float, limit: int) -> tuple[list[int], list[bool]]:
    """The final order of a shortlist whose exact scores are known, and who is tied with the first.

    Those within ``tolerance`` of the best keep the order that they came in; the others follow,
    best first.
    """
    if not scores:
        return [], []
    best = min(scores)
    tied = [i for i, score in enumerate(scores) if score <= best + tolerance]
    first = set(tied)
    rest = sorted((i for i in range(len(scores)) if i not in first), key=lambda i: scores[i])
    order = (tied + rest)[:limit]
    return order, [i in first for i in order]


def counted(
    codes: NDArray[np.int8], nodes: NDArray[np.int32], candidates: NDArray[np.bool_]
) -> dict[str, int]:
    """Return how many nodes are refused, by reason: those of which no place is allowed."""
    if not candidates.any():
        return {}
    allowed = np.zeros(int(nodes.max()) + 1, dtype=np.bool_)
    allowed[nodes[candidates & (codes == 0)]] = True
    refused = np.flatnonzero(candidates & ~allowed[np.maximum(nodes, 0)])
    if not len(refused):
        return {}
    # One place of each node: the last that is written.
    of_node = np.zeros(len(allowed), dtype=np.int8)
    of_node[nodes[refused]] = codes[refused]
    counts = np.bincount(of_node, minlength=len(REASONS))
    return {reason: int(n) for reason, n in zip(REASONS, counts, strict=True) if n and reason}


def _shuffled(places: NDArray[np.intp], wanted: int, random: np.random.Generator) -> Iterator[int]:
    if len(places) > 8 * wanted:
        drawn = random.choice(places, 4 * wanted, replace=False)
        yield from drawn.tolist()
        places = np.setdiff1d(places, drawn)
    yield from random.permutation(places).tolist()


def _sorted(places: NDArray[np.intp], scores: Floats, wanted: int) -> Iterator[int]:
    if len(places) > 8 * wanted:
        split = np.argpartition(scores[places], 4 * wanted)
        best, places = places[split[: 4 * wanted]], places[split[4 * wanted :]]
        yield from best[np.argsort(scores[best], kind="stable")].tolist()
    yield from places[np.argsort(scores[places], kind="stable")].tolist()


def _once(places: Iterator[int], nodes: NDArray[np.int32], seen: set[int]) -> Iterator[int]:
    for place in places:
        node = int(nodes[place])
        if node not in seen:
            seen.add(node)
            yield place
