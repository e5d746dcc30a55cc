"""A matrix with holes, completed by two factors of low rank.

In the manner of Funk's SVD, as Paragon uses it: a singular value decomposition of the matrix with
its holes filled is the start, and both factors are then fitted in turn to the known entries alone,
with a penalty. Nothing is drawn at random.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from kongming.arrays import Floats

ROUNDS = 30

FIRST_PENALTY = 0.3


def complete(
    matrix: Floats,
    *,
    rank: int,
    penalty: float,
    groups: NDArray[np.intp] | None = None,
    rounds: int = ROUNDS,
) -> Floats:
    """``matrix`` (n, m) as the product of (n, rank) and (rank, m) that is near to what is known.

    Unknown entries are NaN. Rows are drawn towards the mean row of their group (``groups``,
    (n,), 0 and up; one group by default): what Funk's biases of the columns do. Columns are drawn
    towards 0. ``penalty`` weighs the squares of a factor for each known entry of its row or
    column, in units of the root mean square of the known entries; above 0.
    """
    known = np.isfinite(matrix).astype(np.float64)
    values = np.where(known > 0.0, matrix, 0.0)
    kinds = np.zeros(len(matrix), dtype=np.intp) if groups is None else groups
    rank = min(rank, *matrix.shape)
    scale = float(np.sum(values**2) / max(np.sum(known), 1.0))
    if scale == 0.0:
        return np.zeros_like(matrix)
    rows, columns = _start(values, known, kinds, rank)
    # The start is shaped by where the holes are. A penalty that falls to its own value over the
    # first half of the rounds lets what is known outweigh that before details are fitted.
    falling = np.geomspace(max(penalty, FIRST_PENALTY), penalty, rounds // 2)
    for share in (*falling, *[penalty] * (rounds - len(falling))):
        # Both factors carry the square root of an entry's size.
        weight = float(share * np.sqrt(scale))
        means = _group_means(rows, known, kinds)
        rows = _solve(values, known, columns, weight, means[kinds])
        columns = _solve(values.T, known.T, rows, weight, np.zeros_like(columns))
    return np.asarray(rows @ columns.T, dtype=np.float64)


def _start(
    values: Floats, known: Floats, kinds: NDArray[np.intp], rank: int
) -> tuple[Floats, Floats]:
    """Factors of the matrix whose holes hold the mean of their column within the group."""
    filled = values.copy()
    overall = np.sum(values, axis=0) / np.maximum(np.sum(known, axis=0), 1.0)
    for kind in np.unique(kinds):
        inside = kinds == kind
        counts = np.sum(known[inside], axis=0)
        means = np.where(
            counts > 0.0, np.sum(values[inside], axis=0) / np.maximum(counts, 1.0), overall
        )
        filled[inside] = np.where(known[inside] > 0.0, values[inside], means)
    left, sizes, right = np.linalg.svd(filled, full_matrices=False)
    roots = np.sqrt(sizes[:rank])
    return left[:, :rank] * roots, right[:rank].T * roots


def _group_means(rows: Floats, known: Floats, kinds: NDArray[np.intp]) -> Floats:
    """(groups, rank): the mean row of each group, rows counted by what is known of them."""
    means = np.zeros((int(kinds.max()) + 1, rows.shape[1]))
    counts = np.sum(known, axis=1)
    for kind in np.unique(kinds):
        inside = kinds == kind
        total = float(np.sum(counts[inside]))
        if total:
            means[kind] = counts[inside] @ rows[inside] / total
    return means


def _solve(values: Floats, known: Floats, others: Floats, weight: float, centre: Floats) -> Floats:
    """One factor given the other: ridge regression of each row, all at once."""
    rank = others.shape[1]
    outer = (others[:, :, None] * others[:, None, :]).reshape(len(others), -1)
    pull = weight * np.maximum(np.sum(known, axis=1), 1.0)
    normal = (known @ outer).reshape(-1, rank, rank) + pull[:, None, None] * np.eye(rank)
    target = values @ others + pull[:, None] * centre
    return np.asarray(np.linalg.solve(normal, target[:, :, None])[:, :, 0], dtype=np.float64)
