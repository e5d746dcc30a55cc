"""The paper's policy: leaves of a tree sampled by error, size and cost (004, Algorithm 3)."""

from __future__ import annotations

import numpy as np

from kongming.arrays import Floats
from kongming.explore.policies import uni
from kongming.explore.situation import Situation

_LIMIT = 1 << 16


def choose(situation: Situation, count: int) -> Floats:
    """At most ``count`` codes, drawn uniformly within the leaves of a tree of all runs."""
    tree = situation.tree()
    left = situation.candidates(_LIMIT)
    if tree is None or len(left) <= count:
        return uni.choose(situation, count)
    X = situation.features
    homes = tree.apply(X(left))
    pool = situation.pool
    if len(pool) > _LIMIT:
        pool = pool[situation.rng.integers(len(pool), size=_LIMIT)]
    leaves = tree.leaf_count_
    sizes = np.bincount(tree.apply(X(pool)), minlength=leaves) / len(pool)
    errors = np.array([float(np.mean(leaf.line.residuals**2)) for leaf in tree.leaves_])
    costs = np.zeros(leaves)
    if situation.cost_of is not None:
        prices = situation.cost_of(left)
        held = np.bincount(homes, minlength=leaves)
        costs = np.bincount(homes, prices, minlength=leaves) / np.maximum(held, 1)
    shares = scores(errors, sizes, costs, situation.weights)
    quotas = apportion(shares, np.bincount(homes, minlength=leaves), count)
    chosen = [
        situation.rng.permutation(np.flatnonzero(homes == leaf))[:quota]
        for leaf, quota in enumerate(quotas)
    ]
    return np.asarray(left[np.concatenate(chosen)])


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
