"""Point reads of a store that keeps no cache: pages of 4 KiB, at random, with direct I/O.

Usage: point_reads.py PATH READS
"""

from __future__ import annotations

import mmap
import os
import random
import sys
import zlib
from pathlib import Path

PAGE = 4096


def main() -> None:
    path, reads = Path(sys.argv[1]), int(sys.argv[2])
    rng = random.Random(8)
    # Direct reads want a buffer that begins at a page.
    page = mmap.mmap(-1, PAGE)
    file = os.open(path, os.O_RDONLY | os.O_DIRECT)
    pages = os.fstat(file).st_size // PAGE
    sums = 0
    try:
        for _ in range(reads):
            if os.preadv(file, [page], rng.randrange(pages) * PAGE) != PAGE:
                sys.exit(f"{path} ended early")
            sums ^= zlib.crc32(page)
    finally:
        os.close(file)
    print(f"read {reads} pages, sums {sums:08x}")


main()
