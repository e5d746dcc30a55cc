"""Whether an inducer works on this I/O folder: `loaded.py FOLDER` ends with 0 if so, else 1."""

import contextlib
import sys
from pathlib import Path

folder = sys.argv[1].encode()
for file in Path("/proc").glob("[0-9]*/cmdline"):
    with contextlib.suppress(OSError):
        words = file.read_bytes().split(b"\0")
        if b"induce" in words and folder in words:
            sys.exit(0)
sys.exit(1)
