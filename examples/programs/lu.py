"""Dense linear algebra in numpy: LU solves of a matrix and their residual. lu.py ORDER TIMES."""

from __future__ import annotations

import sys

import numpy as np


def main() -> None:
    order, times = int(sys.argv[1]), int(sys.argv[2])
    rng = np.random.default_rng(1)
    matrix = rng.standard_normal((order, order)) + order * np.eye(order)
    right = rng.standard_normal((order, 8))
    worst = 0.0
    for _ in range(times):
        solution = np.linalg.solve(matrix, right)
        worst = max(worst, float(np.abs(matrix @ solution - right).max()))
    print("residual ok" if worst < 1e-8 else f"residual {worst} is too large")


main()
