"""A write-ahead log: appends records and makes each durable. fsync_log.py DIR RECORDS."""

from __future__ import annotations

import os
import random
import sys
from pathlib import Path


def main() -> None:
    path, count = Path(sys.argv[1]) / "log", int(sys.argv[2])
    rng = random.Random(4)
    path.unlink(missing_ok=True)
    log = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        for _ in range(count):
            os.write(log, rng.randbytes(rng.randint(100, 4000)))
            os.fsync(log)
    finally:
        os.close(log)
        path.unlink()
    print(f"{count} records are durable")


main()
