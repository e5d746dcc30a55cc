"""Round a fractional design to integer counts and improve it by an exchange algorithm.

After Fedorov (1972): an experiment is replaced by another as long as that lowers the criterion.
Removing and adding an experiment are rank-one updates, so all replacements of an experiment are
evaluated at once.
"""

from __future__ import annotations

import numpy as np

from kongming.arrays import Floats
from kongming.scale.design.relaxation import Problem, criterion, information
from kongming.scale.points import Integers

ROUNDS = 40
TOO_LITTLE = 1e-9
RIDGE = 1e-9
"""Share of one experiment that makes a singular matrix regular while a design is being filled."""


def round_weights(problem: Problem, weights: Floats) -> Integers:
    """(n,) number of runs of each candidate, within the bounds and the budget, such that no single
    exchange improves the criterion.

    The search starts at the rounded weights and at the lower bounds, and returns the better result:
    either may be a local optimum.
    """
    ends = [_improved(problem, start) for start in (weights, problem.lower)]
    values = [criterion(problem, information(problem, counts)) for counts in ends]
    return ends[int(np.argmin(values))].astype(np.intp)


def _improved(problem: Problem, weights: Floats) -> Floats:
    low = np.ceil(problem.lower - 1e-9)
    counts = np.maximum(np.floor(np.minimum(weights, problem.upper) + 1e-6), low)
    # The floor of weights within the budget is within it; lower bounds were rounded up.
    counts = _within(problem, counts, low)
    left = weights - counts
    for at in np.argsort(-left, kind="stable"):
        if left[at] < 0.05:
            break
        if counts[at] + 1 <= problem.upper[at] and _fits(problem, counts, problem.cost[at]):
            counts[at] += 1
    counts = _fill(problem, counts)
    for _ in range(ROUNDS):
        changed = _exchange(problem, counts, low)
        filled = _fill(problem, counts)
        if not changed and np.array_equal(filled, counts):
            break
        counts = filled
    return counts


def _within(problem: Problem, counts: Floats, low: Floats) -> Floats:
    """Remove the most expensive experiments until the budget holds."""
    while float(problem.cost @ counts) > problem.budget * (1.0 + 1e-9):
        spare = np.flatnonzero(counts > low)
        if not len(spare):
            break
        counts[spare[np.argmax(problem.cost[spare])]] -= 1
    return counts


def _spent(problem: Problem, counts: Floats) -> float:
    return float(problem.cost @ counts)


def _fits(problem: Problem, counts: Floats, more: float) -> bool:
    return _spent(problem, counts) + more <= problem.budget * (1.0 + 1e-9)


def _fill(problem: Problem, counts: Floats) -> Floats:
    """Add the experiment with the largest gain per cost as long as one is affordable."""
    counts = counts.copy()
    while True:
        left = problem.budget * (1.0 + 1e-9) - _spent(problem, counts)
        allowed = (problem.cost <= left) & (counts + 1 <= problem.upper)
        if not allowed.any():
            return counts
        M = _regular(problem, counts)
        now = criterion(problem, M)
        after = _with_one_more(problem, M)
        gain = np.where(allowed, (np.log(now) - np.log(after)) / problem.cost, -np.inf)
        at = int(np.argmax(gain))
        if not gain[at] > 0.0:
            return counts
        counts[at] += 1


def _exchange(problem: Problem, counts: Floats, low: Floats) -> bool:
    """Run one round over all removable experiments; changes ``counts`` in place."""
    changed = False
    for at in np.flatnonzero(counts > low):
        if counts[at] <= low[at]:
            continue
        now = criterion(problem, _regular(problem, counts))
        counts[at] -= 1
        left = problem.budget * (1.0 + 1e-9) - _spent(problem, counts)
        allowed = (problem.cost <= left) & (counts + 1 <= problem.upper)
        M = _regular(problem, counts)
        after = np.where(allowed, _with_one_more(problem, M), np.inf)
        best = int(np.argmin(after))
        counts[best if after[best] < now * (1.0 - TOO_LITTLE) else at] += 1
        changed = changed or bool(after[best] < now * (1.0 - TOO_LITTLE) and best != at)
    return changed


def _with_one_more(problem: Problem, M: Floats) -> Floats:
    """(n,) the criterion with one more of each candidate (Sherman and Morrison 1950)."""
    size = np.sqrt(np.diag(M))
    G = np.linalg.inv(M / np.outer(size, size)) / np.outer(size, size)
    A = problem.features
    own = 1.0 + np.maximum(np.einsum("ij,jk,ik->i", A, G, A), 0.0)
    if problem.aims is None:
        return np.asarray(criterion(problem, M) * own ** (-1.0 / len(M)))
    aimed = np.sum((A @ (G @ problem.aims)) ** 2, axis=1)
    return np.asarray(np.maximum(criterion(problem, M) - aimed / own, 1e-300))


def _regular(problem: Problem, counts: Floats) -> Floats:
    """Information matrix with a small ridge, as it may still be singular."""
    ridge = RIDGE * np.mean(problem.features**2, axis=0)
    return information(problem, counts) + np.diag(ridge)
