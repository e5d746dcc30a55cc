"""Wait for write-back of the previous load's dirty pages, for a bounded time."""

from __future__ import annotations

import contextlib
import subprocess
import time
from pathlib import Path

SETTLED_BYTES = 4 * 1024 * 1024
"""Amount of dirty memory that an idle system may have."""

SETTLE_LIMIT_S = 10.0


def dirty_bytes(meminfo: Path = Path("/proc/meminfo")) -> int | None:
    """Read the bytes of dirty memory and of memory under write-back; None if unknown."""
    try:
        lines = meminfo.read_text().splitlines()
    except OSError:
        return None
    kilobytes = [
        int(line.split()[1]) for line in lines if line.startswith(("Dirty:", "Writeback:"))
    ]
    return 1024 * sum(kilobytes) if kilobytes else None


def settle(limit_s: float = SETTLE_LIMIT_S) -> float:
    """Write back dirty pages, for at most ``limit_s``; return the elapsed seconds.

    Otherwise a run would be slowed by writes of the previous inducer. The write-back runs in
    another process: on a slow device the system call cannot be interrupted.
    """
    started = time.monotonic()
    before = dirty_bytes()
    if before is not None and before < SETTLED_BYTES:
        return 0.0
    writer = subprocess.Popen(["sync"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        while time.monotonic() - started < limit_s:
            remaining = dirty_bytes()
            if writer.poll() is not None and (remaining is None or remaining < SETTLED_BYTES):
                break
            time.sleep(0.02)
    finally:
        if writer.poll() is None:
            writer.kill()
            # A sync that hangs in the kernel cannot be killed until the device responds.
            with contextlib.suppress(subprocess.TimeoutExpired):
                writer.wait(timeout=1.0)
    return time.monotonic() - started
