"""What surrogates cost on the idle node: a low quantile over readings that are spread over time."""

from __future__ import annotations

from collections.abc import Iterable

from kongming.errors import IncompatibleError, InputError, UntrainedError
from kongming.fingerprint import Fingerprint
from kongming.probes.aggregation import interpolated

MIN_READINGS = 10
"""Fewer readings than this make no reference: a single one may have had an unseen neighbour."""


def idle_reference(fingerprints: Iterable[Fingerprint], quantile: float = 0.1) -> dict[str, float]:
    """Seconds per operation by surrogate: the ``quantile`` of its readings. Pure.

    A low quantile, not the lowest: neighbours only ever add time, but one lucky reading is no
    reference either. Surrogates with fewer than ten valid readings are left out.

    Raises:
        InputError: ``quantile`` is not from 0 to 1.
        UntrainedError: there are fewer than ten fingerprints.
        IncompatibleError: they are of several nodes or versions of the suite.
    """
    if not 0.0 <= quantile <= 1.0:
        raise InputError("is out of range.", field="quantile", found=quantile, allowed="0 to 1")
    prints = list(fingerprints)
    if len(prints) < MIN_READINGS:
        raise UntrainedError(
            f"An idle reference needs {MIN_READINGS} readings; there are {len(prints)}.",
            hint="Take more with: kongming reference",
        )
    for what, seen in (
        ("nodes", {taken.node.id for taken in prints}),
        ("versions of the suite", {taken.suite_version for taken in prints}),
    ):
        if len(seen) > 1:
            raise IncompatibleError(
                f"Readings of several {what} make no reference: {', '.join(sorted(seen))}."
            )
    times: dict[str, list[float]] = {}
    for taken in prints:
        for name, seconds in taken.times().items():
            times.setdefault(name, []).append(seconds)
    return {
        name: interpolated(sorted(seconds), quantile)
        for name, seconds in sorted(times.items())
        if len(seconds) >= MIN_READINGS
    }
