"""Passive signals as numbers on one scale, for the detection of steps and for estimates. Pure.
Shares of time are unchanged; rates are logarithms, so that a step is a factor.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping

SHARES = (
    "cpu_busy",
    "steal",
    "iowait",
    "psi_cpu_some",
    "psi_memory_some",
    "psi_io_some",
)
"""Signals that are shares of time, 0 to 1."""

RATES = {
    "disk_read_bytes_per_s": 4e6,
    "disk_write_bytes_per_s": 4e6,
    "context_switches_per_s": 2e4,
    "page_faults_per_s": 2e4,
}
"""Signals that are rates, with a typical rate r of an idle node: the feature is log(1 + x / r)."""

NAMES = (*SHARES, *RATES)


def features(system: Mapping[str, float]) -> tuple[float, ...]:
    """Return one number for each of NAMES; a signal that the kernel does not have is always 0."""
    shares = [_finite(system.get(name, 0.0)) for name in SHARES]
    rates = [math.log1p(_finite(system.get(name, 0.0)) / usual) for name, usual in RATES.items()]
    return (*shares, *rates)


def _finite(value: float) -> float:
    return max(0.0, value) if math.isfinite(value) else 0.0


class Lately:
    """The mean over the last ``samples`` samples."""

    def __init__(self, samples: int) -> None:
        self._last: deque[tuple[float, ...]] = deque(maxlen=samples)

    def add(self, values: tuple[float, ...]) -> None:
        self._last.append(values)

    @property
    def values(self) -> tuple[float, ...] | None:
        """Return the mean; None before the first sample."""
        if not self._last:
            return None
        return tuple(math.fsum(each) / len(self._last) for each in zip(*self._last, strict=True))


def step(before: tuple[float, ...], now: tuple[float, ...], least: float) -> str | None:
    """Describe the signal that changed most, by ``least`` or more; None if none did."""
    changes = [(abs(b - a), name, b - a) for name, a, b in zip(NAMES, before, now, strict=True)]
    size, name, change = max(changes)
    if size < least:
        return None
    return f"{name} {'rose' if change > 0 else 'fell'} by {size:.2f}"
