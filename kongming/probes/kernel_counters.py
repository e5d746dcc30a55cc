"""Counters of the kernel: those of block devices, and the time in which tasks stalled."""

from __future__ import annotations

import re
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


def devices(root: Path) -> dict[str, Device]:
    """Return the block devices under ``root`` by name, without partitions, which repeat the
    counters of their disk; empty where the kernel does not tell."""
    by_name = {}
    for line in (read_text(root / "proc/diskstats") or "").splitlines():
        fields = line.split()
        if len(fields) < 14 or _NOT_A_DISK.match(fields[2]) or _is_partition(root, fields[2]):
            continue
        by_name[fields[2]] = Device(
            float(fields[5]) * _SECTOR_BYTES, float(fields[9]) * _SECTOR_BYTES, float(fields[12])
        )
    return by_name


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
    # Names tell where sysfs is not mounted, as in some containers.
    return (
        _PARTITION.match(name) is not None
        or (root / "sys/class/block" / name / "partition").exists()
    )
