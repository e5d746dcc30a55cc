"""Round a fractional design to integer counts and improve it by an exchange algorithm.

After Fedorov (1972): an experiment is replaced by another as long as that lowers the criterion.
Removing and adding an experiment are rank-one updates, so all replacements of an experiment are
evaluated at once.
"""

from __future__ import annotations

from itertools import combinations

import numpy as np

from kongming.arrays import Floats
from kongming.scale.design.relaxation import Problem, criterion, information
from kongming.scale.points import Integers

ROUNDS = 40
PAIRS, WORK = 300, 1_000_000
"""Most pairs of experiments that are exchanged at once, and most evaluations of a candidate for
each addition."""

SPREADS = 8
"""Most even spreads at which the search begins as well."""

_GOLDEN = 0.5 * (5.0**0.5 - 1.0)
TOO_LITTLE = 1e-9
SINGULAR = 1e-13
"""An eigenvalue of the information (each term in its own unit) below this is a rounding error."""

RIDGE = 1e-9
"""Share of one experiment that makes a singular matrix regular while a design is being filled."""


def round_weights(problem: Problem, *starts: Floats) -> Integers:
    """(n,) number of runs of each candidate, within the bounds and the budget, such that no
    exchange of an experiment, or of two, improves the criterion.

    The search begins at each of the ``starts`` (n,), rounded, and at the lower bounds, since any of
    them may lead to a local optimum only. What it returns is no worse than any of the starts that
    is a design itself: of whole runs, within the bounds and the budget.
    """
    spreads = [
        even_spread(problem, i) for i in range(min(SPREADS, WORK // 50 // len(problem.cost)))
    ]
    begun = [*starts, problem.lower, *(spread.astype(np.float64) for spread in spreads)]
    ends = [_improved(problem, start) for start in begun]
    ends += [start for start in starts if _is_design(problem, start)]
    best = ends[int(np.argmin([design_value(problem, counts) for counts in ends]))]
    for _ in range(ROUNDS):
        better = _replaced(problem, best)
        if better is None:
            break
        best = min(
            better, _improved(problem, better), key=lambda counts: design_value(problem, counts)
        )
    return best.astype(np.intp)


def even_spread(problem: Problem, skip: int = 0) -> Integers:
    """(n,) number of runs where experiments are spread evenly over the list of candidates, beyond
    the lower bounds: in steps of the golden section, each that the budget still allows. ``skip``:
    so many steps less at the beginning, for another spread."""
    counts = np.ceil(problem.lower - 1e-9)
    steps = np.arange(1 + skip, 1 + skip + len(counts)) * _GOLDEN % 1.0
    order = np.argsort(np.argsort(steps))
    left = problem.budget * (1.0 + 1e-9) - _spent(problem, counts)
    while True:
        before = left
        for at in order:
            if counts[at] + 1 <= problem.upper[at] and problem.cost[at] <= left:
                counts[at] += 1
                left -= float(problem.cost[at])
        if left == before:
            return counts.astype(np.intp)


def _is_design(problem: Problem, counts: Floats) -> bool:
    return bool(
        np.array_equal(counts, np.round(counts))
        and (counts >= problem.lower).all()
        and (counts <= problem.upper).all()
        and _fits(problem, counts, 0.0)
    )


def design_value(problem: Problem, counts: Floats) -> float:
    """Criterion of a design; infinite where it cannot tell the terms apart. With fewer experiments
    than terms the information is singular but for rounding errors."""
    M = information(problem, counts)
    size = np.sqrt(np.maximum(np.diag(M), 1e-300))
    if np.linalg.eigvalsh(M / np.outer(size, size))[0] < SINGULAR:
        return float("inf")
    return criterion(problem, M)


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


def _fill(problem: Problem, counts: Floats, *, per_cost: bool = True) -> Floats:
    """Add the experiment with the largest gain, or gain per cost, as long as one is affordable."""
    counts = counts.copy()
    while True:
        left = problem.budget * (1.0 + 1e-9) - _spent(problem, counts)
        allowed = (problem.cost <= left) & (counts + 1 <= problem.upper)
        if not allowed.any():
            return counts
        M = _regular(problem, counts)
        now = criterion(problem, M)
        after = _with_one_more(problem, M)
        gain = (np.log(now) - np.log(after)) / (problem.cost if per_cost else 1.0)
        gain = np.where(allowed, gain, -np.inf)
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


def _replaced(problem: Problem, counts: Floats) -> Floats | None:
    """Remove one or two experiments and spend what that frees again; None where no such exchange is
    better. Under a budget a costly experiment may stand for several, or two for a costlier one."""
    spare = np.maximum(counts - np.ceil(problem.lower - 1e-9), 0.0).astype(np.intp)
    single = np.repeat(np.arange(len(spare)), np.minimum(spare, 2))
    pairs = list(dict.fromkeys(combinations(single.tolist(), 2)))
    most = int(np.clip(WORK // len(spare), 10, PAIRS))
    # Evenly over all pairs where there are too many.
    pairs = pairs[:: max(1, -(-len(pairs) // most))]
    # At a cost of 1 each both rules are the same.
    rules = (True, False) if (problem.cost != 1.0).any() else (True,)
    now = design_value(problem, counts)
    best = None
    for removed in (*((at,) for at in dict.fromkeys(single.tolist())), *pairs):
        rest = counts.astype(np.float64)
        np.subtract.at(rest, list(removed), 1.0)
        for per_cost in rules:
            filled = _fill(problem, rest, per_cost=per_cost)
            value = design_value(problem, filled)
            if value < now * (1.0 - TOO_LITTLE):
                now, best = value, filled
    return best


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
