"""Aggregation of chunks of timed work into one reading per surrogate. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kongming.probes.suite import Surrogate
from kongming.records.errors import ImplausibleError, ProbeError
from kongming.records.fingerprint import Reading


@dataclass(frozen=True, slots=True)
class Chunk:
    """Time slice of one surrogate's work; times are of CLOCK_MONOTONIC.

    ``batches`` are (operations, nanoseconds). Operations are fractional if a block was larger
    than its slice (``partial``); ``direct`` is False if the page cache could not be bypassed.
    """

    name: str
    start_ns: int
    end_ns: int
    ops: float
    ns: int
    batches: tuple[tuple[float, int], ...]
    partial: bool = False
    direct: bool | None = None

    @classmethod
    def from_event(cls, event: Mapping[str, Any]) -> Chunk:
        """Parse an event. Raises ProbeError for a missing key or a value that is not a number."""
        try:
            direct = event.get("direct")
            return cls(
                name=str(event["name"]),
                start_ns=int(event["start_ns"]),
                end_ns=int(event["end_ns"]),
                ops=float(event["ops"]),
                ns=int(event["ns"]),
                batches=tuple((float(ops), int(ns)) for ops, ns in event["batches"]),
                partial=bool(event.get("partial", False)),
                direct=None if direct is None else bool(direct),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise ProbeError(f"A chunk of timed work is not valid ({error!r}).") from error

    @property
    def plausible(self) -> bool:
        """Return whether the numbers are plausible: positive work and time, and an end after the
        start."""
        return 0.0 < self.ops < math.inf and self.ns > 0 and self.end_ns >= self.start_ns


def within(chunk: Chunk, windows: Iterable[tuple[int, int]]) -> bool:
    """Return whether a chunk lies completely inside one of the windows (start_ns, end_ns)."""
    return any(start <= chunk.start_ns and chunk.end_ns <= end for start, end in windows)


def aggregate(
    chunks: Iterable[Chunk],
    windows: Sequence[tuple[int, int]] | None = None,
    surrogates: Iterable[Surrogate] = (),
) -> dict[str, Reading]:
    """Aggregate chunks, in any order, into readings by name.

    The mean is total time over total operations: chunks have about equal length, so it is the
    cost that a program running over the same period would see. Median and 90th percentile are
    over the batches. With ``windows`` only chunks completely inside one count. A surrogate
    without plausible numbers gets a reading with the reason; one without chunks is left out.
    """
    descriptions = {surrogate.name: surrogate for surrogate in surrogates}
    by_name: dict[str, list[Chunk]] = {}
    for chunk in chunks:
        if windows is None or within(chunk, windows):
            by_name.setdefault(chunk.name, []).append(chunk)
    return {
        name: _reading(name, named_chunks, descriptions.get(name))
        for name, named_chunks in sorted(by_name.items())
    }


def _reading(name: str, chunks: Sequence[Chunk], surrogate: Surrogate | None) -> Reading:
    family = "" if surrogate is None else surrogate.family
    plausible = [chunk for chunk in chunks if chunk.plausible]
    if not plausible:
        worst = chunks[0]
        return Reading(
            name=name,
            family=family,
            error=f"{worst.ops:g} operations in {worst.ns} ns are implausible.",
        )
    # fsum: the sum does not depend on the order of the chunks.
    ops = math.fsum(chunk.ops for chunk in plausible)
    total_ns = sum(chunk.ns for chunk in plausible)
    costs = sorted(
        nanoseconds / count * 1e-9
        for chunk in plausible
        for count, nanoseconds in chunk.batches
        if count > 0.0 and nanoseconds > 0
    )
    mean = total_ns / ops * 1e-9
    direct_flags = [chunk.direct for chunk in plausible if chunk.direct is not None]
    try:
        return Reading(
            name=name,
            family=family,
            op="" if surrogate is None else surrogate.op,
            seconds_per_op=mean,
            median=interpolated(costs, 0.5) if costs else mean,
            p90=interpolated(costs, 0.9) if costs else mean,
            n=max(1, len(costs)),
            ops=int(ops),
            elapsed_s=total_ns * 1e-9,
            size_bytes=None if surrogate is None else surrogate.size_bytes,
            partial=any(chunk.partial for chunk in plausible),
            direct=all(direct_flags) if direct_flags else None,
        )
    except ImplausibleError as error:
        return Reading(name=name, family=family, error=error.message)


def interpolated(ordered: Sequence[float], share: float) -> float:
    """Quantile ``share`` (0 to 1) of sorted values, with linear interpolation."""
    position = share * (len(ordered) - 1)
    low = int(position)
    high = min(low + 1, len(ordered) - 1)
    between = ordered[low] + (position - low) * (ordered[high] - ordered[low])
    return min(max(between, ordered[low]), ordered[high])
