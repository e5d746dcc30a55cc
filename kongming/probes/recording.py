"""Collect the events of a probing binary and assemble a fingerprint from them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from kongming.probes.aggregation import Chunk, aggregate
from kongming.probes.binary import Event
from kongming.probes.cgroups import cpu_quota
from kongming.probes.suite import Suite
from kongming.records.fingerprint import Fingerprint, NodeFacts, Reading

COARSE_CLOCK_NS = 1000
"""A coarser clock granularity than this adds a warning to the fingerprint."""


@dataclass(slots=True)
class Record:
    """Events of one run of the binary so far. ``layout`` is (bytes done, total bytes)."""

    chunks: list[Chunk] = field(default_factory=list)
    errors: dict[str, str] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    layout: tuple[int, int] | None = None
    clock_granularity_ns: int = 0
    ready: bool = False
    ended: bool = False
    elapsed_ns: int = 0

    def feed(self, event: Event) -> None:
        """Process one event; unknown kinds from a newer binary are ignored.

        Raises:
            ProbeError: a chunk is not valid.
        """
        match event.get("event"):
            case "start":
                self.clock_granularity_ns = int(event.get("clock_granularity_ns", 0))
            case "layout":
                self.layout = (int(event.get("bytes", 0)), int(event.get("total", 0)))
            case "ready":
                self.ready = True
            case "chunk":
                self.chunks.append(Chunk.from_event(event))
            case "error":
                self.errors[str(event.get("name", ""))] = str(event.get("error") or "failed.")
            case "warning":
                self.warnings.append(str(event.get("warning") or event.get("message") or ""))
            case "end":
                self.ended = True
                self.elapsed_ns = int(event.get("elapsed_ns", 0))

    @property
    def elapsed_s(self) -> float:
        """Measuring time: as reported at the end, else from the first to the last chunk."""
        if self.elapsed_ns > 0:
            return self.elapsed_ns * 1e-9
        if not self.chunks:
            return 0.0
        first = min(chunk.start_ns for chunk in self.chunks)
        return (max(chunk.end_ns for chunk in self.chunks) - first) * 1e-9


def assemble(
    record: Record,
    *,
    node: NodeFacts,
    suite: Suite,
    suite_name: str,
    names: Sequence[str],
    cpu: int,
    started_at: str,
    passive: Mapping[str, float],
    windows: Sequence[tuple[int, int]] | None = None,
    warnings: Sequence[str] = (),
    unreached: str = "was not reached within the time.",
) -> Fingerprint:
    """Assemble a record's fingerprint; missing readings get the reason (``unreached``). A surrogate
    that failed has no reading, however much of it was timed before: what its check refused may have
    been wrong from its first operation on."""
    readings = aggregate(record.chunks, windows, suite.surrogates)
    families = {surrogate.name: surrogate.family for surrogate in suite.surrogates}
    complete: dict[str, Reading] = {}
    for name in names:
        reading = readings.get(name)
        if reading is None or name in record.errors:
            reading = Reading(
                name=name,
                family=families.get(name, ""),
                error=record.errors.get(name, unreached),
            )
        complete[name] = reading
    return Fingerprint(
        node=node,
        suite=suite_name,
        suite_version=suite.version,
        cpu=cpu,
        started_at=started_at,
        elapsed_s=record.elapsed_s,
        surrogates=complete,
        passive=dict(passive),
        warnings=(*warnings, *_warnings(record, node, complete, passive)),
    )


def _warnings(
    record: Record,
    node: NodeFacts,
    readings: Mapping[str, Reading],
    passive: Mapping[str, float],
) -> list[str]:
    warnings = [warning for warning in record.warnings if warning]
    buffered = [
        name for name, reading in readings.items() if reading.ok and reading.direct is False
    ]
    if buffered:
        warnings.append(
            f"Buffered, since this file system does not allow direct I/O: {', '.join(buffered)}."
        )
    if record.layout is not None and record.layout[0] < record.layout[1]:
        done, total = record.layout
        warnings.append(f"The I/O file was laid out only in part: {done} of {total} bytes.")
    if record.clock_granularity_ns > COARSE_CLOCK_NS:
        warnings.append(f"The clock has a coarse granularity of {record.clock_granularity_ns} ns.")
    if passive.get("nr_throttled", 0.0) > 0.0:
        quota = cpu_quota(node.cgroup)
        limit = "the CPU quota" if quota is None else f"the CPU quota of {quota:g} CPUs"
        warnings.append(
            f"{limit[0].upper()}{limit[1:]} stopped processes in {passive['nr_throttled']:.0f} "
            "periods while measuring."
        )
    failed = [name for name, reading in readings.items() if not reading.ok]
    if failed and len(failed) < len(readings):
        warnings.append(f"{len(failed)} of {len(readings)} surrogates could not be measured.")
    return warnings
