"""A five-point stencil over two grids: memory bandwidth. stencil.py SIDE STEPS."""

from __future__ import annotations

import sys

import numpy as np


def main() -> None:
    side, steps = int(sys.argv[1]), int(sys.argv[2])
    grid = np.zeros((side, side))
    grid[0, :] = 100.0
    other = grid.copy()
    for _ in range(steps):
        inner = other[1:-1, 1:-1]
        np.add(grid[:-2, 1:-1], grid[2:, 1:-1], out=inner)
        inner += grid[1:-1, :-2]
        inner += grid[1:-1, 2:]
        inner *= 0.25
        grid, other = other, grid
    print(f"heat {grid.sum():.3f} after {steps} steps")


main()
