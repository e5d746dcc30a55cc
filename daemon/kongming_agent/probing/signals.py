"""Passive signals of the node: of the system, of each CPU, device and control group. They come from
a few small files of /proc, /sys and the cgroup file system, at almost no cost.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

from kongming.probes.cgroups import membership, read_text
from kongming.probes.kernel_counters import Device, devices, stalled_us
from kongming.probes.passive import (
    CpuTicks,
    Snapshot,
    busy_shares,
    cpu_ticks,
    difference,
    snapshot,
)

_SYSTEM = Path("/")
_MOST_GROUPS = 32
_MOST_DEVICES = 64
_LONGEST_NAME = 100
_LEAST_FREE_BYTES = 2 << 30
_LEAST_FREE_SHARE = 0.10


@dataclass(frozen=True, slots=True)
class Sample:
    """All counters at one moment (``at`` by CLOCK_MONOTONIC, in seconds)."""

    at: float
    system: Snapshot
    cpus: Mapping[int, CpuTicks]
    devices: Mapping[str, Device]
    groups: Mapping[str, Mapping[str, float]]
    oom_kills: float | None


@dataclass(frozen=True, slots=True)
class Signals:
    """The changes between two samples.

    ``system`` is as kongming.probes.passive gives it; ``cpu_busy`` is a share by logical CPU;
    ``devices`` has ``read_bytes_per_s``, ``write_bytes_per_s`` and ``busy`` (a share) by device;
    ``groups`` has ``psi_cpu_some`` and similar values by control group; ``oom_kills`` is the
    increase.
    """

    at: float
    window_s: float
    system: Mapping[str, float]
    cpu_busy: Mapping[int, float] = field(default_factory=dict)
    devices: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    groups: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    oom_kills: float = 0.0

    def flat(self) -> dict[str, float]:
        """Return the reported signals by name, such as ``device.vda.busy``. CPUs are reported only
        in total.
        """
        signals = dict(self.system)
        for kind, entries in (("device", self.devices), ("cgroup", self.groups)):
            for name, values in entries.items():
                for key, value in values.items():
                    signals[f"{kind}.{name}.{key}"] = value
        return signals


def sample(root: Path = _SYSTEM) -> Sample:
    """Read every counter under ``root``; those that the kernel does not have are absent."""
    return Sample(
        at=time.monotonic(),
        system=snapshot(root),
        cpus=cpu_ticks(root),
        devices=dict(islice(devices(root), _MOST_DEVICES)),
        groups=_groups(root),
        oom_kills=_oom_kills(root),
    )


def between(before: Sample, after: Sample) -> Signals:
    """Return the signals over the window between two samples; a counter that went back is left
    out.
    """
    window = after.at - before.at
    kills = 0.0
    if before.oom_kills is not None and after.oom_kills is not None:
        kills = max(0.0, after.oom_kills - before.oom_kills)
    return Signals(
        at=after.at,
        window_s=window,
        system=difference(before.system, after.system),
        cpu_busy=busy_shares(before.cpus, after.cpus),
        devices=_device_rates(before, after, window),
        groups=_group_shares(before, after, window),
        oom_kills=kills,
    )


def _device_rates(before: Sample, after: Sample, window: float) -> dict[str, dict[str, float]]:
    rates = {}
    for name, now in after.devices.items():
        then = before.devices.get(name)
        if then is None or window <= 0.0 or now.busy_ms < then.busy_ms:
            continue
        if now.read_bytes < then.read_bytes or now.written_bytes < then.written_bytes:
            continue
        rates[name] = {
            "read_bytes_per_s": (now.read_bytes - then.read_bytes) / window,
            "write_bytes_per_s": (now.written_bytes - then.written_bytes) / window,
            "busy": min(1.0, (now.busy_ms - then.busy_ms) / 1e3 / window),
        }
    return rates


def _group_shares(before: Sample, after: Sample, window: float) -> dict[str, dict[str, float]]:
    by_group = {}
    for name, now in after.groups.items():
        then = before.groups.get(name)
        if then is None or window <= 0.0:
            continue
        shares = {
            key: min(1.0, (value - then[key]) / 1e6 / window)
            for key, value in now.items()
            if key in then and value >= then[key]
        }
        if shares:
            by_group[name] = shares
    return by_group


@dataclass(frozen=True, slots=True)
class Room:
    """Decision whether a probe may start; ``reason`` is empty if it may."""

    reason: str = ""

    @property
    def ok(self) -> bool:
        return not self.reason


def room(
    available_bytes: float | None,
    needed_bytes: float,
    total_bytes: float,
    free_disk_bytes: float | None,
    disk_bytes: float | None,
    oom_kills: float = 0.0,
) -> Room:
    """Allow no probe on a machine that is, or would be, out of memory or disk. Pure. Unknown values
    (None) are ignored. ``needed_bytes`` is the probe's own memory; in addition a twentieth of the
    machine's memory must stay free.
    """
    if oom_kills > 0.0:
        return Room("the kernel has just killed a process for lack of memory")
    if available_bytes is not None and available_bytes < needed_bytes + 0.05 * total_bytes:
        return Room(
            f"{available_bytes / 2**20:.0f} MiB of memory are available, "
            f"{(needed_bytes + 0.05 * total_bytes) / 2**20:.0f} MiB are needed"
        )
    if free_disk_bytes is not None and disk_bytes:
        least = min(max(_LEAST_FREE_SHARE * disk_bytes, _LEAST_FREE_BYTES), 0.5 * disk_bytes)
        if free_disk_bytes < least:
            return Room(
                f"{free_disk_bytes / 2**20:.0f} MiB of the disk are free, "
                f"{least / 2**20:.0f} MiB have to stay so"
            )
    return Room()


def disk_room(folder: Path) -> tuple[float | None, float | None]:
    """Return (free bytes, all bytes) of the file system of ``folder``, or of the next existing
    parent.
    """
    for place in (folder, *folder.parents):
        try:
            status = os.statvfs(place)
        except OSError:
            continue
        return status.f_bavail * status.f_frsize, status.f_blocks * status.f_frsize
    return None, None


def idlest(cpus: tuple[int, ...], busy: Mapping[int, float]) -> int:
    """Return the least busy of ``cpus``, the first among equals; unknown ones count as idle."""
    return min(cpus, key=lambda cpu: (round(busy.get(cpu, 0.0), 2), cpu))


def _groups(root: Path) -> dict[str, dict[str, float]]:
    """Return the stalled microseconds of this process's group and of the top-level groups (version
    2).
    """
    where = membership("memory", root) or membership("cpu", root)
    if where is None or where.version != 2:
        return {}
    top = where.folders[-1]
    folders = {"self": where.folders[0]}
    try:
        children = sorted(entry for entry in top.iterdir() if entry.is_dir())
    except OSError:
        children = []
    named = [child for child in children if _is_reported(child.name)]
    for child in named[:_MOST_GROUPS]:
        folders[child.name] = child
    by_group = {}
    for name, folder in folders.items():
        stalled: dict[str, float] = {}
        for resource in ("cpu", "memory", "io"):
            for kind, value in stalled_us(folder / f"{resource}.pressure").items():
                stalled[f"psi_{resource}_{kind}"] = value
        if stalled:
            by_group[name] = stalled
    return by_group


def _is_reported(name: str) -> bool:
    """Return whether a message can hold the name: the server would refuse all that comes with
    it."""
    return name.isascii() and name.isprintable() and len(name) <= _LONGEST_NAME


def _oom_kills(root: Path) -> float | None:
    for line in (read_text(root / "proc/vmstat") or "").splitlines():
        if line.startswith("oom_kill "):
            return float(line.split()[1])
    return None
