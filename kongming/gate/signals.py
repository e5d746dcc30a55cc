"""Signals of the system itself for a stretch of time: steal, throttling, clocks, other
processes."""

from __future__ import annotations

import os
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kongming.gate.processes import TICKS_PER_S, Process, competing, own_ticks, processes
from kongming.probes.cgroups import read_int, read_text
from kongming.probes.passive import CpuTicks, Snapshot, cpu_ticks, difference, snapshot
from kongming.records import moments

_SYSTEM = Path("/")
NAMED = 3
"""Competing processes that are named, those of the most CPU time."""


@dataclass(frozen=True, slots=True)
class State:
    """The machine's counters at one moment. ``ticks`` are those of each CPU; ``overheated`` counts
    thermal throttling."""

    at: str
    unix_s: float
    passive: Snapshot
    ticks: Mapping[int, CpuTicks]
    overheated: int | None
    hz: Mapping[int, float]
    uptime_s: float
    processes: Mapping[int, Process]


@dataclass(frozen=True, slots=True)
class Competitor:
    """A process that is not ours: ``cpus`` is its CPU time over the time, on any CPU, ``since`` its
    start."""

    pid: int
    name: str
    cpus: float
    since: str

    def to_dict(self) -> dict[str, Any]:
        return {"pid": self.pid, "name": self.name, "cpus": self.cpus, "since": self.since}


@dataclass(frozen=True, slots=True)
class Signals:
    """Disturbances of a stretch of time, from the system's own signals; None where it has no such.

    ``steal`` is a share of the CPUs' time, ``others`` the CPUs' worth of time that processes other
    than ours used on the CPUs that we may use (``seen`` are the largest by name, with their time on
    all CPUs; ``further`` is whether there are some that we may not use), ``throttled`` the largest
    share of the time, up to 1, in which a CPU quota can have stopped any of us, in
    ``throttled_periods`` periods: stops of several CPUs and of nested groups add up. ``hz`` is the
    fastest CPU's clock at the end, ``overheated`` the number of thermal throttlings, ``memory`` the
    share of the time in which some process waited for memory.
    """

    since: str
    seconds: float
    cpus: int
    steal: float | None = None
    others: float | None = None
    seen: tuple[Competitor, ...] = ()
    throttled: float | None = None
    throttled_periods: int | None = None
    hz: float | None = None
    overheated: int | None = None
    memory: float | None = None
    further: bool = False

    def to_dict(self) -> dict[str, Any]:
        return {
            "since": self.since,
            "seconds": self.seconds,
            "steal": self.steal,
            "other_cpus": self.others,
            "processes": [process.to_dict() for process in self.seen],
            "throttled": self.throttled,
            "throttled_periods": self.throttled_periods,
            "cpu_hz": self.hz,
            "thermal_throttlings": self.overheated,
            "memory_pressure": self.memory,
        }


def state(root: Path = _SYSTEM) -> State:
    """Read the machine whose /proc and /sys are under ``root``."""
    ticks = cpu_ticks(root)
    overheated = [
        count
        for path in (root / "sys/devices/system/cpu").glob("cpu[0-9]*/thermal_throttle")
        if (count := read_int(path / "core_throttle_count")) is not None
    ]
    hz = {
        cpu: khz * 1000.0
        for cpu in ticks
        if (khz := read_int(root / f"sys/devices/system/cpu/cpu{cpu}/cpufreq/scaling_cur_freq"))
    }
    uptime = (read_text(root / "proc/uptime") or "0").split()[0]
    return State(
        at=moments.now(),
        unix_s=time.time(),
        passive=snapshot(root),
        ticks=ticks,
        overheated=sum(overheated) if overheated else None,
        hz=hz,
        uptime_s=float(uptime),
        processes=processes(root),
    )


def between(before: State, after: State, cpus: Collection[int], pid: int | None = None) -> Signals:
    """The signals from ``before`` to ``after`` on ``cpus``; ``pid`` (default: this process) and its
    descendants are ours. Pure but for that default."""
    pid = os.getpid() if pid is None else pid
    seconds = after.passive.monotonic_s - before.passive.monotonic_s
    if seconds <= 0.0:
        return Signals(before.at, 0.0, len(cpus))
    ticks = seconds * TICKS_PER_S
    # A CPU may have been switched on or off meanwhile.
    used = {
        cpu: after.ticks[cpu].busy - before.ticks[cpu].busy
        for cpu in cpus
        if cpu in before.ticks and cpu in after.ticks
    }
    taken = [after.ticks[cpu].stolen - before.ticks[cpu].stolen for cpu in used]
    others = None
    if pid in after.processes and used:
        ours = own_ticks(after.processes, pid) - own_ticks(before.processes, pid)
        others = max(0.0, (sum(used.values()) - ours) / ticks)
    seen = tuple(
        Competitor(
            process.pid,
            process.name,
            used_ticks / ticks,
            moments.format(
                after.unix_s - after.uptime_s + process.started / TICKS_PER_S, "seconds"
            ),
        )
        for process, used_ticks in competing(before.processes, after.processes, pid, cpus)[:NAMED]
    )
    passive = difference(before.passive, after.passive)
    throttled = passive.get("throttled_s")
    periods = passive.get("nr_throttled")
    return Signals(
        since=before.at,
        seconds=seconds,
        cpus=len(used),
        steal=sum(taken) / (ticks * len(used)) if used else None,
        others=others,
        seen=seen,
        # The kernel adds the time of each CPU that is stopped; how far they were stopped at once is
        # not known, so this is an upper bound.
        throttled=None if throttled is None else min(1.0, throttled / seconds),
        throttled_periods=None if periods is None else int(periods),
        hz=max((after.hz[cpu] for cpu in used if cpu in after.hz), default=None),
        overheated=None
        if before.overheated is None or after.overheated is None
        else after.overheated - before.overheated,
        memory=passive.get("psi_memory_some"),
        further=not after.ticks.keys() <= used.keys(),
    )
