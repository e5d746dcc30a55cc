"""The fingerprint of the idle node, from several readings that are spread over time. Pure."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from kongming.records.fingerprint import Fingerprint, Reading

MOST_READINGS = 10
"""Number of readings of the idle node that are kept for each domain."""


def retain(readings: Sequence[Fingerprint], newest: Fingerprint) -> list[Fingerprint]:
    """Return the readings to keep, including ``newest``: those ``alike``, oldest first."""
    return [*alike(readings, newest.suite_version, newest.node.id), newest][-MOST_READINGS:]


def alike(readings: Sequence[Fingerprint], suite_version: str, node_id: str) -> list[Fingerprint]:
    """Return the readings of this suite and node: a machine that has become another one, as by more
    CPUs or a copied image, has none of the one before."""
    return [
        each for each in readings if each.suite_version == suite_version and each.node.id == node_id
    ]


def reference(readings: Sequence[Fingerprint]) -> Fingerprint | None:
    """Return one fingerprint for several; None without any. Of every surrogate it has the measured
    reading at the lower quartile: unseen neighbours only add time, but a single fast reading is not
    a reference either.
    """
    if not readings:
        return None
    newest = readings[-1]
    if len(readings) == 1:
        return newest
    chosen: dict[str, Reading] = {}
    for name, reading in newest.surrogates.items():
        sound = [each.surrogates[name] for each in readings if name in each.times()]
        sound.sort(key=lambda each: each.seconds_per_op or math.inf)
        chosen[name] = sound[(len(sound) - 1) // 4] if sound else reading
    # The same readings give the same reference, with the same id, so it may be reported twice.
    ids = "\n".join(each.id for each in readings)
    return replace(
        newest,
        id=hashlib.sha256(ids.encode()).hexdigest()[:32],
        surrogates=chosen,
        warnings=(f"The lower quartiles of {len(readings)} readings of the idle node.",),
    )


def slowdowns(times: Mapping[str, float], idle: Mapping[str, float]) -> dict[str, float]:
    """Return the ratio to the idle node by surrogate, for surrogates that both have."""
    return {name: seconds / idle[name] for name, seconds in times.items() if name in idle}


def general(ratios: Mapping[str, float]) -> float | None:
    """Return the geometric mean of the ratios; None without any."""
    if not ratios:
        return None
    return math.exp(math.fsum(map(math.log, ratios.values())) / len(ratios))
