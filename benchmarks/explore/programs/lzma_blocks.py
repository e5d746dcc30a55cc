"""Compress blocks of text with LZMA in worker processes, each within a limit on its memory.

    lzma_blocks.py FILE THREADS LEVEL WINDOW_KIB LIMIT_MIB INPUT_MIB

Exit status 3 if a worker's window does not fit into its memory.
"""

from __future__ import annotations

import lzma
import multiprocessing
import resource
import sys
from pathlib import Path

BLOCKS = 4


def limited(limit_mib: int) -> None:
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    most = used + (limit_mib << 20)
    resource.setrlimit(resource.RLIMIT_AS, (most, most))


def compress(task: tuple[bytes, int, int]) -> int:
    data, level, window = task
    filters = [{"id": lzma.FILTER_LZMA2, "preset": level, "dict_size": window << 10}]
    try:
        return len(lzma.compress(data, format=lzma.FORMAT_XZ, filters=filters))
    except (MemoryError, lzma.LZMAError):
        return -1


def main() -> int:
    path = Path(sys.argv[1])
    threads, level, window, limit, size = map(int, sys.argv[2:])
    with path.open("rb") as file:
        data = file.read(size << 20)
    step = len(data) // BLOCKS
    tasks = [(data[k * step : (k + 1) * step], level, window) for k in range(BLOCKS)]
    with multiprocessing.Pool(threads, limited, (limit,)) as pool:
        sizes = pool.map(compress, tasks, chunksize=1)
    if min(sizes) < 0:
        print("a window does not fit into the memory of a worker")
        return 3
    print(f"compressed {len(data)} to {sum(sizes)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
