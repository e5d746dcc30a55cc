"""Counters of the kernel: those of block devices, and the time in which tasks stalled."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from kongming.probes.cgroups import read_text

_SECTOR_BYTES = 512

# No disk is behind these: files, memory, and what can be taken out.
_NOT_A_DISK = re.compile(r"(loop|ram|zram|sr|fd)")
_LAYER = re.compile(r"(dm-|md|nbd)")
_PARTITION = re.compile(r"((s|h|v|xv)d[a-z]+\d+|(nvme\d+n\d+|mmcblk\d+)p\d+)$")


@dataclass(frozen=True, slots=True)
class Device:
    """Counters of one block device: bytes, and milliseconds with work in flight."""

    read_bytes: float
    written_bytes: float
    busy_ms: float


def devices(root: Path) -> Iterator[tuple[str, Device]]:
    """Yield the names of the block devices under ``root`` with their counters, without partitions,
    which repeat those of their disk; none where the kernel does not tell."""
    for line in (read_text(root / "proc/diskstats") or "").splitlines():
        fields = line.split()
        if len(fields) < 14 or _NOT_A_DISK.match(fields[2]) or _is_partition(root, fields[2]):
            continue
        read, written, busy = (float(fields[place]) for place in (5, 9, 12))
        yield fields[2], Device(read * _SECTOR_BYTES, written * _SECTOR_BYTES, busy)


def is_layer(name: str) -> bool:
    """Return whether a device lies over others, so that its counters repeat theirs."""
    return _LAYER.match(name) is not None


def stalled_us(file: Path) -> dict[str, float]:
    """Return the microseconds in which tasks stalled, by kind (``some``, ``full``), of a file of
    pressure stall information; empty if the kernel was built or booted without it."""
    stalled = {}
    for line in (read_text(file) or "").splitlines():
        kind, *fields = line.split()
        for field in fields:
            key, _, value = field.partition("=")
            if key == "total" and value.isdigit():
                stalled[kind] = float(value)
    return stalled


def _is_partition(root: Path, name: str) -> bool:
    if is_layer(name):
        return False
    if (root / "sys/class/block" / name / "partition").exists():
        return True
    # Names tell where sysfs is not mounted, as in some containers. A disk may have such a name.
    named_so = _PARTITION.match(name) is not None
    return named_so and not (root / "sys/class/block" / name).exists()
