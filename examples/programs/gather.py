"""Random gathers from a large array, as a database or a graph does. gather.py MIB MILLIONS."""

from __future__ import annotations

import sys

import numpy as np


def main() -> None:
    mebibytes, millions = int(sys.argv[1]), int(sys.argv[2])
    values = np.arange(mebibytes * (1 << 20) // 8, dtype=np.int64)
    rng = np.random.default_rng(2)
    total = 0
    for _ in range(millions):
        index = rng.integers(0, values.size, 1_000_000)
        total += int(values[index].sum())
    print(f"gathered {millions} million, sum {total}")


main()
