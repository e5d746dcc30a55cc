"""Experiment designs: how long finding one takes, how near it is to the optimum, what it buys.

    python benchmarks/scale/designs.py

Prints one JSON document. Where cvxpy is installed, the small relaxations are solved by it as well.
"""

from __future__ import annotations

import json
import time
from typing import Any, Literal

import numpy as np

from kongming.scale.design.candidates import Experiments, candidates, find_design
from kongming.scale.design.relaxation import Problem, relax
from kongming.scale.fit.terms import matrix, read_terms
from kongming.scale.points import Configuration, Points

TARGET = Configuration(64, 1.0)
SIZES = ((16, 10, "default", None), (100, 100, "default", None), (100, 100, "sqrt,square", None))


def by_cvxpy(problem: Problem) -> float | None:
    """The optimum by another solver; None without it."""
    try:
        import cvxpy
    except ModuleNotFoundError:
        return None
    weights = cvxpy.Variable(len(problem.features))
    M = problem.features.T @ cvxpy.diag(weights) @ problem.features
    if problem.aims is None:
        goal = -cvxpy.log_det(M)
    else:
        goal = sum(cvxpy.matrix_frac(column, M) for column in problem.aims.T)
    limits = [weights >= 0, weights <= 1, problem.cost @ weights <= problem.budget]
    cvxpy_problem = cvxpy.Problem(cvxpy.Minimize(goal), limits)
    cvxpy_problem.solve(solver="CLARABEL")
    p = problem.features.shape[1]
    return (
        float(np.exp(cvxpy_problem.value / p))
        if problem.aims is None
        else float(cvxpy_problem.value)
    )


def main() -> None:
    rows: list[dict[str, Any]] = []
    kinds: tuple[Literal["A", "D", "I"], ...] = ("A", "D", "I")
    for machines, scales, text, items in SIZES:
        terms = read_terms(text, items=items).terms
        points = candidates(range(1, machines + 1), np.linspace(0.01, 0.1, scales).tolist())
        experiments = Experiments(points, np.ones(len(points)), terms, items)
        budget = 2.0 * len(terms)
        for kind in kinds:
            began = time.perf_counter()
            design = find_design(experiments, budget, kind=kind, target=TARGET)
            seconds = time.perf_counter() - began
            row: dict[str, Any] = {
                "machines": machines,
                "scales": scales,
                "terms": len(terms),
                "optimality": kind,
                "seconds": seconds,
                "gap": design.relaxed.gap,
                "efficiency": design.efficiency,
                "variance": dict(design.variances),
            }
            if machines * scales <= 200:
                A = matrix(terms, points, items)
                size = A.mean(axis=0)
                at = matrix(terms, Points.of([TARGET]), items) / size
                aims = {"A": np.eye(len(terms)), "D": None, "I": at.T}[kind]
                n = len(A)
                zero = np.zeros((len(terms), len(terms)))
                problem = Problem(A / size, aims, zero, np.ones(n), budget, np.zeros(n), np.ones(n))
                best = by_cvxpy(problem)
                row["over_cvxpy"] = None if best is None else relax(problem).value / best - 1.0
            rows.append(row)
    print(json.dumps(rows, indent=2))


if __name__ == "__main__":
    main()
