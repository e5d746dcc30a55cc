"""Fingerprints that cannot be true: what a broken or lying node reports is refused, not learnt."""

from __future__ import annotations

import math
from collections.abc import Mapping

from kongming.fingerprint import Fingerprint

LEAST_S = 1e-12
"""No operation of a surrogate takes less: a processor at 5 GHz that retires eight in a cycle
needs 25 ps, and the widest vectors a sixteenth of that."""

MOST_S = 3600.0
"""No operation of a surrogate takes longer: probes are stopped long before."""

FASTEST_SHARE = 1e-2
"""Of the idle reference's time, the least that a reading may take. Nothing makes a surrogate a
hundred times faster than idle, a page cache that it must bypass excepted."""

PLAUSIBLY_CACHED_SHARE = 1e-5
"""The same for device surrogates, which a cache that cannot be bypassed does speed up."""

_DEVICES = frozenset({"read", "write", "metadata", "network"})


def implausible(
    fingerprint: Fingerprint, reference: Mapping[str, float] | None = None
) -> str | None:
    """Why the fingerprint cannot be true, in a sentence that names the surrogate; else None.

    ``reference`` are seconds per operation on the idle node, where they are known. Readings that
    failed are no lie; a fingerprint of nothing else is none.
    """
    times = fingerprint.times()
    if not times:
        return "The fingerprint has no reading that succeeded."
    if _plausible(fingerprint, reference):
        return None
    for name, seconds in times.items():
        found = f"surrogates.{name}: {seconds!r} s per operation"
        if not math.isfinite(seconds):
            return f"{found} is not a finite number."
        if seconds <= 0.0:
            return f"{found} is not above 0."
        if seconds < LEAST_S:
            return f"{found} is faster than any processor."
        if seconds > MOST_S:
            return f"{found} is longer than any probe runs."
        idle = None if reference is None else reference.get(name)
        device = fingerprint.surrogates[name].family in _DEVICES
        least = PLAUSIBLY_CACHED_SHARE if device else FASTEST_SHARE
        if idle is not None and seconds < least * idle:
            return f"{found} is {idle / seconds:.0f} times faster than on the idle node."
    return None


def _plausible(fingerprint: Fingerprint, reference: Mapping[str, float] | None) -> bool:
    """Whether nothing at all is wrong: what is, only has to be found where something is."""
    known = reference or {}
    for name, reading in fingerprint.surrogates.items():
        seconds = reading.seconds_per_op
        if seconds is None or reading.error is not None:
            continue
        # Of the greater share: a device that was cached is looked at once more.
        if not LEAST_S <= seconds <= MOST_S or seconds < FASTEST_SHARE * known.get(name, 0.0):
            return False
    return True
