"""Whether an inducer works on this I/O folder: `loaded.py FOLDER` ends with 0 if so, else 1."""

# It runs within programs that are timed: so it imports next to nothing.
import os
import sys

folder = os.fsencode(sys.argv[1])
for pid in filter(str.isdigit, os.listdir("/proc")):  # noqa: PTH208
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:  # noqa: PTH123
            words = file.read().split(b"\0")
    except OSError:
        continue
    if b"induce" in words and folder in words:
        sys.exit(0)
sys.exit(1)
