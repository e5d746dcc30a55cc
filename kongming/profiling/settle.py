"""Let the disk finish what the last load left behind, for a bounded time."""

from __future__ import annotations

import contextlib
import subprocess
import time
from pathlib import Path

SETTLED_BYTES = 4 * 1024 * 1024
"""Dirty memory below this is what an idle system has anyway."""

SETTLE_LIMIT_S = 10.0


def dirty_bytes(meminfo: Path = Path("/proc/meminfo")) -> int | None:
    """Memory that waits to be written or is being written, in bytes; None where it is not told."""
    try:
        lines = meminfo.read_text().splitlines()
    except OSError:
        return None
    found = [int(line.split()[1]) for line in lines if line.startswith(("Dirty:", "Writeback:"))]
    return 1024 * sum(found) if found else None


def settle(limit_s: float = SETTLE_LIMIT_S) -> float:
    """Write dirty pages back and wait until few are left, at most ``limit_s``; seconds it took.

    Without this, a run pays for the writes of the inducer before it. The write-back itself runs
    in another process: on a slow device the system call cannot be interrupted.
    """
    started = time.monotonic()
    before = dirty_bytes()
    if before is not None and before < SETTLED_BYTES:
        return 0.0
    writer = subprocess.Popen(["sync"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        while time.monotonic() - started < limit_s:
            left = dirty_bytes()
            if writer.poll() is not None and (left is None or left < SETTLED_BYTES):
                break
            time.sleep(0.02)
    finally:
        if writer.poll() is None:
            writer.kill()
            # A sync that hangs in the kernel ends with the device, not with our patience.
            with contextlib.suppress(subprocess.TimeoutExpired):
                writer.wait(timeout=1.0)
    return time.monotonic() - started
