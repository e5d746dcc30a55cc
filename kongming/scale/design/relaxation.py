"""Optimal experiment design with fractional weights: a convex problem with an optimality gap.

Ernest (NSDI 2016), section 3.3: minimise tr(M^-1) over the weights, M = sum of weight_i a_i a_i',
each weight within its bounds and the total cost within a budget. A barrier method (Boyd and
Vandenberghe 2004, chapter 11) whose Newton steps exploit the low rank of the Hessian, which depends
on the number of terms, not of candidates. A linearisation of the criterion at any weights bounds
the optimum from below, which gives the gap.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kongming.arrays import Floats
from kongming.records.errors import InputError

Bools = NDArray[np.bool_]

TOLERANCE = 1e-6
CENTERINGS = 60
NEWTON_STEPS = 60
SHARPER = 12.0
"""Factor by which the barrier is reduced from one centering to the next."""


PATIENCE = 3
"""Centerings without a smaller gap until the search stops at the limit of the precision."""


@dataclass(frozen=True, eq=False, slots=True)
class Problem:
    """``features`` (n, p) of the candidates; ``aims`` (p, q): what is minimised is the trace of
    aims' M^-1 aims (the identity: A-optimal; a target's features: I-optimal), or det(M)^(-1/p)
    for None (D-optimal). ``prior`` (p, p) is the information of the existing runs. ``cost``,
    ``lower`` and ``upper`` (n,) are of each candidate; ``budget`` bounds the sum of costs, and
    ``limit`` is the option that gives it."""

    features: Floats
    aims: Floats | None
    prior: Floats
    cost: Floats
    budget: float
    lower: Floats
    upper: Floats
    limit: str = "budget"

    def check(self) -> None:
        """Raise InputError if there is no feasible design."""
        if not (self.cost > 0.0).all() or not np.isfinite(self.cost).all():
            raise InputError("Every experiment needs a cost above 0.", field="cost")
        if (self.lower > self.upper).any():
            raise InputError("A lower bound is above the upper bound.", field="--at-least")
        needed = float(self.cost @ self.lower)
        if needed > self.budget * (1.0 + 1e-12):
            raise InputError(
                "allows less than --at-least requires.",
                field=self.limit,
                value=f"{self.budget:g}",
                allowed=f"{needed:g} or more",
            )
        if float(self.cost.min()) > self.budget * (1.0 + 1e-9):
            raise InputError(
                "allows no experiment.",
                field=self.limit,
                value=f"{self.budget:g}",
                allowed=f"{float(self.cost.min()):.4g} or more",
                hint="Increase it, or allow smaller experiments.",
            )
        usable = self.features[self.upper > 0.0]
        M = usable.T @ usable + self.prior
        size = np.sqrt(np.diag(M))
        if not (size > 0.0).all() or _rank(M / np.outer(size, size)) < len(size):
            raise InputError(
                "These experiments cannot tell the terms apart.",
                field="--machines, --scale",
                hint="Allow more machine counts or scales, or ask for fewer terms.",
            )


@dataclass(frozen=True, eq=False, slots=True)
class Relaxed:
    """``weights`` (n,) of the candidates, the criterion's ``value``, and ``gap``: (value - a lower
    bound of the optimum) / value."""

    weights: Floats
    value: float
    gap: float
    steps: int

    @property
    def bound(self) -> float:
        """Lower bound of the criterion over all feasible weights."""
        return self.value * (1.0 - self.gap)


def information(problem: Problem, weights: Floats) -> Floats:
    """(p, p) information matrix M of the weights, including the existing runs."""
    return np.asarray(problem.prior + (problem.features * weights[:, None]).T @ problem.features)


def criterion(problem: Problem, M: Floats) -> float:
    """Value of the criterion at an information matrix; infinite if it is singular."""
    size = np.sqrt(np.maximum(np.diag(M), 1e-300))
    scaled = M / np.outer(size, size)
    try:
        factor = np.linalg.cholesky(scaled)
    except np.linalg.LinAlgError:
        return float("inf")
    if problem.aims is None:
        logs = 2.0 * float(np.sum(np.log(np.diag(factor))) + np.sum(np.log(size)))
        return float(np.exp(-logs / len(M)))
    half = np.linalg.solve(factor, problem.aims / size[:, None])
    return float(np.sum(half**2))


def relax(problem: Problem, tolerance: float = TOLERANCE) -> Relaxed:
    """Find the optimal weights, to a relative gap of ``tolerance`` or to the numerical limit.

    Raises:
        InputError: there is no feasible design.
    """
    problem.check()
    free = problem.upper > problem.lower
    slack = problem.budget - float(problem.cost @ problem.lower)
    if not free.any() or slack <= 1e-12 * problem.budget:
        value = criterion(problem, information(problem, problem.lower))
        return Relaxed(problem.lower.copy(), value, 0.0, 0)
    if float(problem.cost @ problem.upper) <= problem.budget:
        # Everything is affordable, and more information is never worse.
        value = criterion(problem, information(problem, problem.upper))
        return Relaxed(problem.upper.copy(), value, 0.0, 0)
    return _barrier(problem, free, slack, tolerance)


def _barrier(problem: Problem, free: Bools, slack: float, tolerance: float) -> Relaxed:
    low, cost = problem.lower[free], problem.cost[free]
    high = np.minimum(problem.upper[free], low + 2.0 * slack / cost)
    room = high - low
    weights = low + room * min(0.5, 0.5 * slack / float(cost @ room))
    all_weights = problem.lower.copy()

    def put(free_weights: Floats) -> Floats:
        all_weights[free] = free_weights
        return all_weights

    size = _unit(problem, put(weights))
    squares = _squares(problem.features)
    sharpness = float(len(weights))
    best: Relaxed | None = None
    steps = idle = 0
    for _ in range(CENTERINGS):
        for _ in range(NEWTON_STEPS):
            steps += 1
            gradient, half = _derivatives(problem, put(weights), free, size, squares)
            left = problem.budget - float(problem.cost @ put(weights))
            below, above = weights - low, high - weights
            slope = sharpness * gradient - 1.0 / below + 1.0 / above + cost / left
            diagonal = 1.0 / below**2 + 1.0 / above**2
            columns = np.column_stack([np.sqrt(sharpness) * half, cost / left])
            move = -_solve(diagonal, columns, slope)
            fall = -float(slope @ move)
            if fall <= 1e-7 or not np.isfinite(fall):
                break
            step = _longest(move, below, above, left, cost)
            here = _barrier_value(problem, put(weights), sharpness, size, below, above, left)
            while step > 1e-10:
                tried = weights + step * move
                rest = problem.budget - float(problem.cost @ put(tried))
                there = _barrier_value(
                    problem, put(tried), sharpness, size, tried - low, high - tried, rest
                )
                if there <= here - 0.1 * step * fall:
                    break
                step *= 0.5
            if step <= 1e-10:
                break
            weights = weights + step * move
            if fall <= 1e-3:
                break
        current = _certified(problem, put(weights).copy(), squares, steps)
        idle = 0 if best is None or current.gap < 0.9 * best.gap else idle + 1
        if best is None or current.gap < best.gap:
            best = current
        if best.gap <= tolerance or idle >= PATIENCE:
            break
        sharpness *= SHARPER
    assert best is not None
    return best


def _unit(problem: Problem, weights: Floats) -> float:
    """Unit of the criterion, which makes the sharpness of the barrier independent of its scale."""
    if problem.aims is None:
        return 1.0
    return criterion(problem, information(problem, weights))


def _barrier_value(
    problem: Problem,
    weights: Floats,
    sharpness: float,
    size: float,
    below: Floats,
    above: Floats,
    left: float,
) -> float:
    if left <= 0.0 or float(below.min()) <= 0.0 or float(above.min()) <= 0.0:
        return float("inf")
    value = criterion(problem, information(problem, weights))
    if not np.isfinite(value):
        return float("inf")
    p = problem.features.shape[1]
    smooth = p * np.log(value) if problem.aims is None else value / size
    logs = float(np.sum(np.log(below)) + np.sum(np.log(above)) + np.log(left))
    return float(sharpness * smooth - logs)


def _derivatives(
    problem: Problem, weights: Floats, free: Bools, size: float, squares: Floats
) -> tuple[Floats, Floats]:
    """Gradient (m,) and H (m, r) with Hessian = H H', of the smooth part at the free weights.

    For tr(B' G B), G = M^-1: -|a_i' G B|^2 and 2 (a_i' G B B' G a_j)(a_i' G a_j); for -log det M:
    -a_i' G a_i and (a_i' G a_j)^2. Products of two inner products are inner products of
    products, which makes the factor; ``squares`` are the products of each candidate's features.
    """
    A = problem.features[free]
    G = _inverse(information(problem, weights))
    if problem.aims is None:
        return -np.einsum("ij,jk,ik->i", A, G, A), squares[free] @ _root(G, G)
    towards = G @ problem.aims
    aimed = A @ towards
    gradient = -np.sum(aimed**2, axis=1) / size
    if towards.shape[1] <= A.shape[1] // 2:
        return gradient, _pairs(aimed, A @ np.linalg.cholesky(G)) * np.sqrt(2.0 / size)
    return gradient, squares[free] @ _root(towards @ towards.T, G) * np.sqrt(2.0 / size)


def _inverse(M: Floats) -> Floats:
    size = np.sqrt(np.diag(M))
    inverse = np.linalg.inv(M / np.outer(size, size))
    inverse = 0.5 * (inverse + inverse.T)
    return np.asarray(inverse / np.outer(size, size))


def _pairs(a: Floats, b: Floats) -> Floats:
    """(m, q p) products of all pairs of entries within each row."""
    return np.asarray((a[:, :, None] * b[:, None, :]).reshape(len(a), -1))


def _squares(A: Floats) -> Floats:
    """(n, p (p + 1) / 2): each candidate's a_i a_j for i <= j."""
    first, second = np.triu_indices(A.shape[1])
    return np.asarray(A[:, first] * A[:, second])


def _root(V: Floats, G: Floats) -> Floats:
    """(r, r) R such that (a' V b)(a' G b) is the inner product of R's product with both squares."""
    p = len(G)
    first, second = np.triu_indices(p)
    # Both orders of a pair are one column of the squares.
    spread = np.zeros((p * p, len(first)))
    columns = np.arange(len(first))
    spread[first * p + second, columns] = 1.0
    spread[second * p + first, columns] = 1.0
    inner = spread.T @ np.kron(V, G) @ spread
    values, vectors = np.linalg.eigh(0.5 * (inner + inner.T))
    return np.asarray(vectors * np.sqrt(np.maximum(values, 0.0)))


def _solve(diagonal: Floats, columns: Floats, right: Floats) -> Floats:
    """Solve (diag(diagonal) + columns columns') x = right by a system of the size of columns."""
    scaled = columns / np.sqrt(diagonal)[:, None]
    inner = scaled.T @ scaled
    inner.flat[:: len(inner) + 1] += 1.0
    start = right / diagonal
    return np.asarray(
        start - (scaled @ np.linalg.solve(inner, columns.T @ start)) / np.sqrt(diagonal)
    )


def _longest(move: Floats, below: Floats, above: Floats, left: float, cost: Floats) -> float:
    """Longest step, up to 1, that stays strictly feasible."""
    down = float(np.max(-move / below, initial=0.0))
    up = float(np.max(move / above, initial=0.0))
    spent = max(float(cost @ move) / left, 0.0)
    return min(1.0, 0.99 / max(down, up, spent, 1e-300))


def _certified(problem: Problem, weights: Floats, squares: Floats, steps: int) -> Relaxed:
    """Compute the gap: the largest possible decrease of the linearised criterion."""
    value = criterion(problem, information(problem, weights))
    gradient, _ = _derivatives(problem, weights, np.ones(len(weights), dtype=bool), 1.0, squares)
    vertex = _cheapest_fall(problem, gradient)
    fall = max(float(gradient @ (weights - vertex)), 0.0)
    if problem.aims is None:
        gap = float(-np.expm1(-fall / problem.features.shape[1]))
    else:
        gap = fall / value
    return Relaxed(weights, value, gap, steps)


def _cheapest_fall(problem: Problem, gradient: Floats) -> Floats:
    """Weights that minimise a linear function: greedily, by the decrease per cost."""
    weights = problem.lower.copy()
    left = problem.budget - float(problem.cost @ weights)
    for at in np.argsort(gradient / problem.cost, kind="stable"):
        if left <= 0.0 or gradient[at] >= 0.0:
            break
        more = min(float(problem.upper[at] - weights[at]), left / float(problem.cost[at]))
        weights[at] += more
        left -= more * float(problem.cost[at])
    return weights


def _rank(scaled: Floats) -> int:
    return int(np.linalg.matrix_rank(scaled, tol=1e-11, hermitian=True))
