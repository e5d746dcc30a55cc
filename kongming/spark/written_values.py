"""Sizes and times as Spark's settings have them. The sampling job, which Spark runs, reads them by
this as well: standard library alone.
"""

from __future__ import annotations

import math
import re

_SIZES = {"b": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40, "p": 1 << 50}

_TIME = re.compile(r"(\d{1,18})([a-z]*)")
_TIMES = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
"""Seconds of the units in which Spark writes times."""


def size_bytes(text: str, unit: str = "m") -> float | None:
    """Parse Spark's sizes: 8g, 512m, 1024 (of ``unit``); None for what is none (redacted)."""
    plain = text.strip().lower()
    if plain.endswith("b"):
        # Without another letter it is the unit itself.
        plain = plain if plain[-2:-1].isdigit() else plain[:-1]
    if plain and plain[-1] in _SIZES:
        plain, unit = plain[:-1], plain[-1]
    try:
        value = float(plain) * _SIZES[unit]
    except ValueError:
        return None
    return value if 0.0 < value < math.inf else None


def seconds(text: str) -> float | None:
    """Parse Spark's times: 10m, 500ms, 60 (seconds); None for what is none."""
    match = _TIME.fullmatch(text.strip().lower())
    if match is None or (match[2] or "s") not in _TIMES:
        return None
    return float(match[1]) * _TIMES[match[2] or "s"]
