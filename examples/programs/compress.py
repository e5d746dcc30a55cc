"""Compresses a file in memory and prints the size: compress.py lzma|bz2|zlib PATH LEVEL."""

from __future__ import annotations

import bz2
import lzma
import sys
import zlib
from pathlib import Path


def main() -> None:
    method, path, level = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])
    data = path.read_bytes()
    if method == "lzma":
        packed = lzma.compress(data, preset=level)
    elif method == "bz2":
        packed = bz2.compress(data, level)
    else:
        packed = zlib.compress(data, level)
    print(f"compressed {len(data)} to {len(packed)} bytes")


main()
