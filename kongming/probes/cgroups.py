"""Limits of this process's control groups: version 1 and 2, including parent groups."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# Version 1 reports "no limit" as the largest value of a page counter, just below 2**63.
_NO_LIMIT = 1 << 60


@dataclass(frozen=True, slots=True)
class Membership:
    """Folders of one controller for this process, from its own group up to the mount's root."""

    version: int
    folders: tuple[Path, ...]


def read_text(path: Path) -> str | None:
    """Read a kernel file, stripped; None if it cannot be read."""
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return None


def read_int(path: Path) -> int | None:
    """Read the integer in a kernel file; None if there is none."""
    text = read_text(path)
    try:
        return None if text is None else int(text)
    except ValueError:
        return None


def membership(controller: str, root: Path = Path("/")) -> Membership | None:
    """Find this process in the hierarchy of ``controller`` (cpu, memory, cpuset).

    In the hybrid layout each controller is in either version 1 or 2; returns None if neither
    has it.
    """
    groups: dict[str, str] = {}
    for line in (read_text(root / "proc/self/cgroup") or "").splitlines():
        _, controllers, path = [*line.split(":", 2), "", ""][:3]
        for name in controllers.split(","):
            groups[name] = path
    if controller in groups:
        mount = _mount(root, "cgroup", controller)
        if mount is not None:
            return Membership(1, tuple(_chain(root, *mount, groups[controller])))
    if "" in groups:
        mount = _mount(root, "cgroup2", "")
        if mount is not None:
            folders = tuple(_chain(root, *mount, groups[""]))
            if any(controller in _controllers(folder) for folder in folders):
                return Membership(2, folders)
    return None


def cgroup_facts(root: Path = Path("/")) -> dict[str, Any]:
    """Read limits and throttling of this process's groups; empty if there are no groups.

    The smallest limit along the path applies. ``cpu_quota`` is in CPUs (None: unlimited),
    ``period_us`` its period, ``memory_limit_bytes`` None without a limit, ``cpus`` the allowed
    list in the kernel's format, and ``nr_periods``, ``nr_throttled`` and ``throttled_us`` are
    sums over the path.
    """
    cpu, memory, cpuset = (membership(name, root) for name in ("cpu", "memory", "cpuset"))
    present = [member for member in (cpu, memory, cpuset) if member is not None]
    if not present:
        return {}
    facts: dict[str, Any] = {
        "version": present[0].version,
        "cpu_quota": None,
        "period_us": None,
        "memory_limit_bytes": None,
        "cpus": None,
    }
    if cpu is not None:
        for folder in cpu.folders:
            quota, period = _quota(folder, cpu.version)
            if quota is not None and (facts["cpu_quota"] is None or quota < facts["cpu_quota"]):
                facts["cpu_quota"], facts["period_us"] = quota, period
        facts.update(throttling(cpu))
    if memory is not None:
        limits = [_memory_limit(folder, memory.version) for folder in memory.folders]
        facts["memory_limit_bytes"] = min((x for x in limits if x is not None), default=None)
    if cpuset is not None:
        facts["cpus"] = _cpus(cpuset)
    return facts


def throttling(cpu: Membership) -> dict[str, int]:
    """Sum nr_periods, nr_throttled and throttled_us over the path; unknown keys are absent."""
    totals: dict[str, int] = {}
    for folder in cpu.folders:
        counters = dict(_counters(read_text(folder / "cpu.stat") or ""))
        if "throttled_time" in counters:
            counters["throttled_usec"] = counters["throttled_time"] // 1000
        for key, name in (
            ("nr_periods", "nr_periods"),
            ("nr_throttled", "nr_throttled"),
            ("throttled_usec", "throttled_us"),
        ):
            if key in counters:
                totals[name] = totals.get(name, 0) + counters[key]
    return totals


def cpu_quota(facts: Mapping[str, Any]) -> float | None:
    """Return the quota in CPUs from a node's ``cgroup`` facts, or None."""
    quota = facts.get("cpu_quota")
    return float(quota) if isinstance(quota, int | float) else None


def _counters(text: str) -> Iterator[tuple[str, int]]:
    for line in text.splitlines():
        key, _, value = line.partition(" ")
        if value.isdigit():
            yield key, int(value)


def _controllers(folder: Path) -> list[str]:
    return (read_text(folder / "cgroup.controllers") or "").split()


def _mount(root: Path, kind: str, controller: str) -> tuple[str, str] | None:
    """Find a hierarchy's mount point and the group that is mounted there."""
    for line in (read_text(root / "proc/self/mountinfo") or "").splitlines():
        before, separator, after = line.partition(" - ")
        fields, tail = before.split(), after.split()
        if not separator or len(fields) < 5 or len(tail) < 3 or tail[0] != kind:
            continue
        if kind == "cgroup2" or controller in tail[2].split(","):
            return unescape_mount(fields[4]), unescape_mount(fields[3])
    return None


def unescape_mount(field: str) -> str:
    """Return a field of mountinfo with its octal escapes as the characters they stand for."""
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), field)


def _chain(root: Path, point: str, mounted: str, group: str) -> Iterator[Path]:
    """Yield the group's folder and its parents up to the mount point.

    Inside a container the group may lie above the mounted group ("/../x") or have its name on
    the host; then only the mounted group is visible.
    """
    base = root / point.lstrip("/")
    prefix = mounted.rstrip("/")
    if prefix and (group == prefix or group.startswith(prefix + "/")):
        group = group[len(prefix) :]
    parts = [part for part in group.split("/") if part]
    if ".." in parts or not base.joinpath(*parts).is_dir():
        parts = []
    for depth in range(len(parts), -1, -1):
        yield base.joinpath(*parts[:depth])


def _quota(folder: Path, version: int) -> tuple[float | None, int | None]:
    if version == 1:
        quota = read_int(folder / "cpu.cfs_quota_us")
        period = read_int(folder / "cpu.cfs_period_us")
    else:
        first, _, second = (read_text(folder / "cpu.max") or "max").partition(" ")
        quota = int(first) if first.isdigit() else None
        period = int(second) if second.isdigit() else None
    if quota is None or quota <= 0 or not period:
        return None, None
    return quota / period, period


def _memory_limit(folder: Path, version: int) -> int | None:
    name = "memory.limit_in_bytes" if version == 1 else "memory.max"
    limit = read_int(folder / name)
    return None if limit is None or limit >= _NO_LIMIT else limit


def _cpus(cpuset: Membership) -> str | None:
    names = (
        ("cpuset.effective_cpus", "cpuset.cpus")
        if cpuset.version == 1
        else ("cpuset.cpus.effective", "cpuset.cpus")
    )
    for folder in cpuset.folders:
        for name in names:
            text = read_text(folder / name)
            if text:
                return text
    return None
