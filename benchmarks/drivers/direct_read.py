"""Reads blocks of a file past the page cache. direct_read.py FILE BLOCKS; --lay-out writes FILE.

Prints {"seconds_per_block": ...}. Nothing but the device's reads takes time worth speaking of.
"""

from __future__ import annotations

import json
import mmap
import os
import random
import sys
import time
from pathlib import Path

BLOCK = 4 << 20
FILE_BLOCKS = 64


def lay_out(path: str) -> None:
    """256 MiB that no device can leave out or compress away."""
    rng = random.Random(1)
    with Path(path).open("wb") as file:
        for _ in range(FILE_BLOCKS):
            file.write(rng.randbytes(BLOCK))
        file.flush()
        os.fsync(file.fileno())


def main() -> None:
    path, blocks = sys.argv[1], sys.argv[2]
    if blocks == "--lay-out":
        lay_out(path)
        return
    rng = random.Random(2)
    buffer = mmap.mmap(-1, BLOCK)
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECT)
    start = time.monotonic()
    for _ in range(int(blocks)):
        if os.preadv(descriptor, [buffer], rng.randrange(FILE_BLOCKS) * BLOCK) != BLOCK:
            sys.exit("direct_read.py: a short read")
    took = time.monotonic() - start
    os.close(descriptor)
    print(json.dumps({"seconds_per_block": took / int(blocks)}))


main()
