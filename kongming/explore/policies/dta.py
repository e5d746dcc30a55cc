"""The paper's policy: leaves of a tree sampled by error, size and cost (004, Algorithm 3).

The paper draws uniformly within a leaf. Here each draw is the farthest from all runs of a few that
are uniform: a handful of random points often lie close to each other, or to what was run before,
and leave the rest of the leaf empty. ``draws`` of 1 is the paper's.
"""

from __future__ import annotations

import numpy as np

from kongming.arrays import Floats
from kongming.explore.policies.spreading import spread
from kongming.explore.situation import Situation
from kongming.explore.tree import ObliqueModelTree

_LIMIT = 1 << 16
_FIRST = 1024
"""Candidates of the first draws if they are uniform."""


def choose(situation: Situation, count: int) -> Floats:
    """Draw at most ``count`` codes within the leaves of a tree of all runs."""
    tree = situation.tree()
    left = situation.candidates(
        max(count, _FIRST) if tree is None and situation.draws == 1 else _LIMIT
    )
    if tree is None or len(left) <= count:
        leaves = [(np.arange(len(left)), min(count, len(left)))]
    else:
        leaves = _quotas(situation, tree, left, count)
    X = situation.even_features
    points = X(left)
    done = X(np.concatenate([situation.runs, situation.failed, situation.pending]))
    chosen: list[int] = []
    for inside, quota in leaves:
        drawn = spread(points[inside], done, quota, situation.rng, few=situation.draws)
        chosen += inside[drawn].tolist()
        done = np.concatenate([done, points[inside[drawn]]])
    return left[chosen]


def _quotas(
    situation: Situation, tree: ObliqueModelTree, left: Floats, count: int
) -> list[tuple[np.ndarray, int]]:
    """The places of the candidates in each leaf, and how many of them are to be run."""
    X = situation.features
    homes = tree.apply(X(left))
    pool = situation.pool
    if len(pool) > _LIMIT:
        pool = pool[situation.rng.integers(len(pool), size=_LIMIT)]
    leaves = tree.leaf_count_
    within = tree.apply(X(pool))
    counts = np.bincount(within, minlength=leaves)
    errors = np.array([float(np.mean(leaf.line.residuals**2)) for leaf in tree.leaves_])
    costs = np.zeros(leaves)
    held = np.bincount(homes, minlength=leaves)
    if situation.cost_of is not None:
        sums = np.bincount(within, situation.cost_of(pool), minlength=leaves)
        costs = sums / np.maximum(counts, 1)
    quotas = apportion(scores(errors, counts / len(pool), costs, situation.weights), held, count)
    return [(np.flatnonzero(homes == leaf), int(quota)) for leaf, quota in enumerate(quotas)]


def scores(
    errors: Floats, sizes: Floats, costs: Floats, weights: tuple[float, float, float]
) -> Floats:
    """(leaves,) w_error x error / max + w_size x size / max - w_cost x cost / max."""

    def scaled(values: Floats) -> Floats:
        largest = float(values.max(initial=0.0))
        return values / largest if largest > 0.0 else np.zeros_like(values)

    error, size, cost = weights
    return error * scaled(errors) + size * scaled(sizes) - cost * scaled(costs)


def apportion(shares: Floats, held: np.ndarray, count: int) -> np.ndarray:
    """Divide ``count`` in proportion to the scores, by largest remainder; no leaf gets more than
    it holds. Where scores are negative, all are raised until the least is 0; where all are
    equal, leaves share equally."""
    count = min(count, int(held.sum()))
    weights = shares - min(float(shares.min(initial=0.0)), 0.0)
    quotas = np.zeros(len(held), dtype=np.intp)
    while (rest := count - int(quotas.sum())) > 0:
        open_ = quotas < held
        weight = np.where(open_, weights, 0.0)
        if weight.sum() <= 0.0:
            weight = open_.astype(np.float64)
        exact = rest * weight / weight.sum()
        given = np.floor(exact).astype(np.intp)
        order = np.argsort(-(exact - given), kind="stable")
        given[order[: rest - int(given.sum())]] += 1
        quotas += np.minimum(given, held - quotas)
    return quotas
