"""Check that a node can have measured a fingerprint: what no record can tell without its
reference."""

from __future__ import annotations

from collections.abc import Mapping

from kongming.records.errors import ImplausibleError
from kongming.records.fingerprint import Fingerprint

FASTEST_SHARE = 1e-2
"""Of the idle reference's time, the least that a reading may take. Nothing makes a surrogate a
hundred times faster than idle, a page cache that it must bypass excepted."""

PLAUSIBLY_CACHED_SHARE = 1e-5
"""The same for device surrogates, which a cache that cannot be bypassed does speed up."""

_DEVICES = frozenset({"read", "write", "metadata", "network"})


def check_plausible(
    fingerprint: Fingerprint, reference: Mapping[str, float] | None, field: str
) -> None:
    """Check a fingerprint that a node reports against its idle reference, where that is known.

    ``reference`` are seconds per operation by surrogate. Readings that failed are passed over; a
    fingerprint of nothing else is none.

    Raises:
        ImplausibleError: no reading succeeded, or one is too fast.
    """
    idle = reference or {}
    measured = False
    for name, reading in fingerprint.surrogates.items():
        seconds = reading.seconds_per_op
        if seconds is None or reading.error is not None:
            continue
        measured = True
        # Of the greater share: a device that was cached is looked at once more.
        if seconds < FASTEST_SHARE * idle.get(name, 0.0):
            device = reading.family in _DEVICES
            if seconds < (PLAUSIBLY_CACHED_SHARE if device else FASTEST_SHARE) * idle[name]:
                raise ImplausibleError(
                    f"surrogates.{name}: {seconds!r} s per operation is "
                    f"{idle[name] / seconds:.0f} times faster than on the idle node.",
                    field=field,
                )
    if not measured:
        raise ImplausibleError("The fingerprint has no reading that succeeded.", field=field)
