"""Surrogate times on the idle node: a low quantile of readings spread over time."""

from __future__ import annotations

from collections.abc import Iterable

from kongming.probes.aggregation import interpolated
from kongming.records.errors import IncompatibleError, InputError, UntrainedError
from kongming.records.fingerprint import Fingerprint

MIN_READINGS = 10
"""Minimum number of readings: any single one may be affected by an unseen neighbour."""


def idle_reference(fingerprints: Iterable[Fingerprint], quantile: float = 0.1) -> dict[str, float]:
    """Compute seconds per operation by surrogate: the ``quantile`` of its readings. Pure.

    A low quantile instead of the minimum: neighbours only add time, but a single lucky reading
    is not a reference either. Surrogates with fewer than ten valid readings are left out.

    Raises:
        InputError: ``quantile`` is not from 0 to 1.
        UntrainedError: there are fewer than ten fingerprints.
        IncompatibleError: they come from several nodes or suite versions.
    """
    if not 0.0 <= quantile <= 1.0:
        raise InputError("is out of range.", field="quantile", value=quantile, allowed="0 to 1")
    prints = list(fingerprints)
    if len(prints) < MIN_READINGS:
        raise UntrainedError(
            f"An idle reference needs {MIN_READINGS} readings; there are {len(prints)}.",
            hint="Take more with: kongming reference",
        )
    for subject, values in (
        ("nodes", {fingerprint.node.id for fingerprint in prints}),
        ("versions of the suite", {fingerprint.suite_version for fingerprint in prints}),
    ):
        if len(values) > 1:
            raise IncompatibleError(
                f"Readings of several {subject} cannot form a reference: "
                f"{', '.join(sorted(values))}."
            )
    times: dict[str, list[float]] = {}
    for fingerprint in prints:
        for name, seconds in fingerprint.times().items():
            times.setdefault(name, []).append(seconds)
    return {
        name: interpolated(sorted(seconds), quantile)
        for name, seconds in sorted(times.items())
        if len(seconds) >= MIN_READINGS
    }
