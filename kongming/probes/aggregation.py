"""Chunks of timed work -> one reading for each surrogate. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kongming.errors import ProbeError
from kongming.fingerprint import Reading
from kongming.probes.suite import Surrogate


@dataclass(frozen=True, slots=True)
class Chunk:
    """One slice of one surrogate's timed work, by CLOCK_MONOTONIC.

    ``batches`` are (operations, nanoseconds). Operations are fractions where a block was larger
    than its slice (``partial``); ``direct`` is False where the page cache could not be avoided.
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
        """Raises ProbeError for a line that lacks a key or holds no number."""
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
    def true(self) -> bool:
        """Whether the numbers can be true: work was done and took time, and time ran forward."""
        return 0.0 < self.ops < math.inf and self.ns > 0 and self.end_ns >= self.start_ns


def within(chunk: Chunk, windows: Iterable[tuple[int, int]]) -> bool:
    """Whether a chunk lies wholly inside one of the windows (start_ns, end_ns)."""
    return any(start <= chunk.start_ns and chunk.end_ns <= end for start, end in windows)


def aggregate(
    chunks: Iterable[Chunk],
    windows: Sequence[tuple[int, int]] | None = None,
    surrogates: Iterable[Surrogate] = (),
) -> dict[str, Reading]:
    """Readings by name, from chunks in any order.

    The mean is all timed nanoseconds over all operations: chunks last about equally long, so it
    is what a program pays that runs through the same time. Median and 90th percentile are over
    the batches. With ``windows`` only chunks wholly inside one count. A surrogate whose numbers
    cannot be true gets a reading with the reason; one without chunks is left out.
    """
    described = {known.name: known for known in surrogates}
    by_name: dict[str, list[Chunk]] = {}
    for chunk in chunks:
        if windows is None or within(chunk, windows):
            by_name.setdefault(chunk.name, []).append(chunk)
    return {
        name: _reading(name, found, described.get(name)) for name, found in sorted(by_name.items())
    }


def _reading(name: str, chunks: Sequence[Chunk], surrogate: Surrogate | None) -> Reading:
    family = "" if surrogate is None else surrogate.family
    sound = [chunk for chunk in chunks if chunk.true]
    if not sound:
        worst = chunks[0]
        return Reading(
            name=name,
            family=family,
            error=f"{worst.ops:g} operations in {worst.ns} ns cannot be true.",
        )
    # fsum: the same sum whatever the order of the chunks.
    ops = math.fsum(chunk.ops for chunk in sound)
    total_ns = sum(chunk.ns for chunk in sound)
    costs = sorted(
        nanoseconds / count * 1e-9
        for chunk in sound
        for count, nanoseconds in chunk.batches
        if count > 0.0 and nanoseconds > 0
    )
    mean = total_ns / ops * 1e-9
    told = [chunk.direct for chunk in sound if chunk.direct is not None]
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
        partial=any(chunk.partial for chunk in sound),
        direct=all(told) if told else None,
    )


def interpolated(ordered: Sequence[float], share: float) -> float:
    """The quantile ``share`` (0 to 1) of values in ascending order, between the nearest two."""
    position = share * (len(ordered) - 1)
    low = int(position)
    high = min(low + 1, len(ordered) - 1)
    between = ordered[low] + (position - low) * (ordered[high] - ordered[low])
    return min(max(between, ordered[low]), ordered[high])
