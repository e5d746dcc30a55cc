"""Passive signals over a window: pressure, steal, load, memory, dirty pages, disk, idle states."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from kongming.probes.cgroups import cgroup_facts, read_int, read_text
from kongming.probes.kernel_counters import devices, is_layer, stalled_us

_SYSTEM = Path("/")


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Counters and gauges at one moment: ``counters`` are monotonic, ``levels`` are gauges."""

    monotonic_s: float
    counters: Mapping[str, float]
    levels: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class CpuTicks:
    """Ticks since boot in which a CPU ran something, waited for I/O, or was taken away by the
    hypervisor, and all of them."""

    busy: int
    iowait: int
    stolen: int
    total: int


def cpu_ticks(root: Path = _SYSTEM) -> dict[int, CpuTicks]:
    """The ticks of each logical CPU that is online."""
    return {
        int(name[3:]): _ticks(values)
        for name, *values in map(str.split, (read_text(root / "proc/stat") or "").splitlines())
        if name.startswith("cpu") and name[3:].isdigit()
    }


def busy_shares(before: Mapping[int, CpuTicks], after: Mapping[int, CpuTicks]) -> dict[int, float]:
    """The busy share of each CPU between two readings; a counter that went back is left out. Steal
    time counts as busy, since it is not available."""
    shares = {}
    for cpu, now in after.items():
        then = before.get(cpu)
        if then is None or now.total <= then.total:
            continue
        busy = now.busy + now.stolen - then.busy - then.stolen
        if busy >= 0:
            shares[cpu] = min(1.0, busy / (now.total - then.total))
    return shares


def snapshot(root: Path = _SYSTEM, *, neighbour: int | None = None) -> Snapshot:
    """Read the signals under ``root``; unsupported signals are absent, not 0. ``neighbour`` is the
    CPU whose idle states are read as well."""
    counters: dict[str, float] = {}
    levels: dict[str, float] = {}
    for resource in ("cpu", "memory", "io"):
        counters.update(_pressure(root, resource))
    _stat(root, counters, levels)
    _vmstat(root, counters)
    _meminfo(root, levels)
    _disks(root, counters)
    if neighbour is not None:
        counters.update(_idle_states(root, neighbour))
    load = (read_text(root / "proc/loadavg") or "").split()
    if load:
        levels["load1"] = float(load[0])
    groups = cgroup_facts(root)
    if groups.get("cpu_quota") is not None:
        levels["cpu_quota"] = float(groups["cpu_quota"])
    for key in ("nr_periods", "nr_throttled"):
        if key in groups:
            counters[key] = float(groups[key])
    if "throttled_us" in groups:
        counters["throttled_s"] = groups["throttled_us"] / 1e6
    hertz = [
        value * 1000.0
        for path in (root / "sys/devices/system/cpu").glob("cpu[0-9]*/cpufreq/scaling_cur_freq")
        if (value := read_int(path)) is not None
    ]
    if hertz:
        levels["cpu_hz_mean"] = sum(hertz) / len(hertz)
        levels["cpu_hz_min"] = min(hertz)
    return Snapshot(time.monotonic(), counters, levels)


def difference(before: Snapshot, after: Snapshot) -> dict[str, float]:
    """Compute the signals over the window between two snapshots, by name.

    ``psi_*`` are shares of the window in which some (or all) tasks stalled, and
    ``cpuidle.DRIVER.STATE`` those in which the neighbour's CPU was in an idle state; ``cpu_busy``,
    ``iowait`` and ``steal`` are shares of all CPUs' time; ``*_per_s`` are rates; ``nr_periods``,
    ``nr_throttled`` and ``throttled_s`` are increments, ``throttled_s`` summed over the CPUs that a
    quota stopped and over nested groups; the rest are gauges at the end. A signal
    that either snapshot lacks, or a counter that decreased, is left out.
    """
    window_s = after.monotonic_s - before.monotonic_s
    signals = dict(after.levels)
    if window_s <= 0.0:
        return signals
    increments = {
        key: after.counters[key] - value
        for key, value in before.counters.items()
        if key in after.counters and after.counters[key] >= value
    }
    ticks = increments.pop("ticks_total", 0.0)
    for key, value in increments.items():
        if key.startswith(("psi_", "cpuidle.")):
            signals[key] = min(1.0, value / 1e6 / window_s)
        elif key.startswith("ticks_"):
            if ticks > 0.0:
                signals[key.removeprefix("ticks_")] = min(1.0, value / ticks)
        elif key in ("nr_periods", "nr_throttled", "throttled_s"):
            signals[key] = value
        else:
            signals[f"{key}_per_s"] = value / window_s
    return signals


def _pressure(root: Path, resource: str) -> dict[str, float]:
    """Read stalled microseconds; empty if the kernel was built or booted without PSI."""
    return {
        f"psi_{resource}_{kind}": value
        for kind, value in stalled_us(root / "proc/pressure" / resource).items()
        # System-wide "full" CPU pressure is undefined and always 0.
        if (resource, kind) != ("cpu", "full")
    }


def _ticks(values: Sequence[str]) -> CpuTicks:
    # Guest time is already included in user and nice; older kernels have fewer fields.
    user, nice, system, idle, iowait, irq, softirq, stolen = (*map(int, values[:8]), *[0] * 8)[:8]
    busy = user + nice + system + irq + softirq
    return CpuTicks(busy, iowait, stolen, busy + idle + iowait + stolen)


def _idle_states(root: Path, cpu: int) -> dict[str, float]:
    """Read the microseconds in each idle state of a CPU, which the kernel adds when it wakes up;
    empty without a cpuidle driver, as in many virtual machines."""
    system = root / "sys/devices/system/cpu"
    driver = (read_text(system / "cpuidle/current_driver") or "").strip()
    slept_us: dict[str, float] = {}
    for state in sorted((system / f"cpu{cpu}/cpuidle").glob("state[0-9]*")):
        name = "_".join((read_text(state / "name") or state.name).split())
        time_us = read_int(state / "time")
        if time_us is not None:
            slept_us[f"cpuidle.{driver or 'unknown'}.{name}"] = float(time_us)
    return slept_us


def _stat(root: Path, counters: dict[str, float], levels: dict[str, float]) -> None:
    for line in (read_text(root / "proc/stat") or "").splitlines():
        key, *values = line.split()
        if key == "cpu":
            ticks = _ticks(values)
            counters["ticks_total"] = ticks.total
            counters["ticks_iowait"] = ticks.iowait
            counters["ticks_steal"] = ticks.stolen
            # Steal time counts as busy, since it is not available.
            counters["ticks_cpu_busy"] = ticks.busy + ticks.stolen
        elif key == "ctxt":
            counters["context_switches"] = float(values[0])
        elif key == "procs_running":
            levels["running_tasks"] = float(values[0])


def _vmstat(root: Path, counters: dict[str, float]) -> None:
    names = {
        "pgfault": "page_faults",
        "pgmajfault": "major_faults",
        "thp_fault_alloc": "huge_page_faults",
    }
    for line in (read_text(root / "proc/vmstat") or "").splitlines():
        key, _, value = line.partition(" ")
        if key in names:
            counters[names[key]] = float(value)


def _meminfo(root: Path, levels: dict[str, float]) -> None:
    names = {
        "MemAvailable": "memory_available_bytes",
        "Dirty": "dirty_bytes",
        "Writeback": "writeback_bytes",
        "Cached": "page_cache_bytes",
        "AnonHugePages": "huge_page_bytes",
    }
    for line in (read_text(root / "proc/meminfo") or "").splitlines():
        key, _, value = line.partition(":")
        if key in names:
            levels[names[key]] = float(value.split()[0]) * 1024.0


def _disks(root: Path, counters: dict[str, float]) -> None:
    disks = [device for name, device in devices(root) if not is_layer(name)]
    if disks:
        counters["disk_read_bytes"] = sum(disk.read_bytes for disk in disks)
        counters["disk_write_bytes"] = sum(disk.written_bytes for disk in disks)
