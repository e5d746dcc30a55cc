"""The identity of this boot of this machine."""

from __future__ import annotations

import functools
from pathlib import Path


@functools.cache
def boot_id() -> str:
    """Return the random name of this boot of this machine, 32 hexadecimal digits; empty where the
    system does not say. The containers of a machine share it, as they share its locks.
    """
    try:
        text = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii")
    except OSError:
        return ""
    return text.strip().replace("-", "")
