"""CPU time of the processes of a machine, and which of them are not ours."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from kongming.probes.cgroups import read_text

TICKS_PER_S = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Process:
    """A process as /proc shows it: ``ticks`` of CPU time of its own, ``reaped`` those of children
    that have ended, ``started`` in ticks since boot, ``cpu`` where it ran last."""

    pid: int
    parent: int
    name: str
    ticks: int
    reaped: int
    started: int
    cpu: int


def processes(root: Path = Path("/")) -> dict[int, Process]:
    """Read all processes that can be seen, by pid; those that end meanwhile are left out."""
    return {process.pid: process for process in _each(root)}


def _each(root: Path) -> Iterator[Process]:
    try:
        names = [entry for entry in os.listdir(root / "proc") if entry.isdigit()]  # noqa: PTH208
    except OSError:
        return
    for name in names:
        text = read_text(root / "proc" / name / "stat")
        # The name stands in parentheses and may hold some itself.
        head, separator, tail = (text or "").rpartition(")")
        fields = tail.split()
        if separator and len(fields) > 36:
            yield Process(
                pid=int(name),
                parent=int(fields[1]),
                name=head.partition("(")[2],
                ticks=int(fields[11]) + int(fields[12]),
                reaped=int(fields[13]) + int(fields[14]),
                started=int(fields[19]),
                cpu=int(fields[36]),
            )


def family(all_of: Mapping[int, Process], pid: int) -> set[int]:
    """The process ``pid`` and all that descend from it."""
    children: dict[int, list[int]] = {}
    for process in all_of.values():
        children.setdefault(process.parent, []).append(process.pid)
    members, waiting = set(), [pid]
    while waiting:
        member = waiting.pop()
        if member in all_of and member not in members:
            members.add(member)
            waiting += children.get(member, [])
    return members


def own_ticks(all_of: Mapping[int, Process], pid: int) -> int:
    """CPU time of ``pid`` and its descendants, of those that have ended and were reaped too."""
    return sum(all_of[member].ticks + all_of[member].reaped for member in family(all_of, pid))


def competing(
    before: Mapping[int, Process],
    after: Mapping[int, Process],
    pid: int,
    cpus: Collection[int],
) -> list[tuple[Process, int]]:
    """Processes other than ``pid`` and its descendants, with the ticks that each used between two
    readings, most first: those that ran last on one of ``cpus``. What used none is left out."""
    ours = family(before, pid) | family(after, pid)
    used = []
    for process in after.values():
        if process.pid in ours or process.cpu not in cpus:
            continue
        known = before.get(process.pid)
        # A pid can be used again; what started in between is new altogether.
        same = known is not None and known.started == process.started
        ticks = process.ticks - (known.ticks if known is not None and same else 0)
        if ticks > 0:
            used.append((process, ticks))
    return sorted(used, key=lambda pair: (-pair[1], pair[0].pid))
