"""Measurement of one fingerprint in child processes, with its cost."""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from kongming.probes.fingerprinting import WINDOWS_S, Progress, take_fingerprint
from kongming.probes.node import memory_limit_bytes
from kongming.probes.suite import MEMORY_SHARE, Suite
from kongming.profiling.runs.coupling import with_coupling
from kongming.records.fingerprint import Fingerprint, NodeFacts, Reading
from kongming_agent.probing.budget import Cost
from kongming_agent.probing.schedule import Probe

WRITING = ("write", "metadata")
"""Families of surrogates that write to the disk."""

_IN_MEMORY = ("cache", "memory")
_LEFT_OUT = "was left out: the daily write budget is spent."


@dataclass(frozen=True, slots=True)
class Taken:
    """A fingerprint and its cost."""

    fingerprint: Fingerprint
    cost: Cost


def domains_of(node: NodeFacts) -> tuple[tuple[int, tuple[int, ...]], ...]:
    """Return (index in NodeFacts.llc_cpus, allowed CPUs) of each last-level cache domain. It is one
    domain of all allowed CPUs if the kernel reports no cache. Pure.
    """
    domains = []
    for place, group in enumerate(node.llc_cpus):
        cpus = tuple(cpu for cpu in group if cpu in node.cpus)
        if cpus:
            domains.append((place, cpus))
    return tuple(domains) or ((0, node.cpus),)


def needed_bytes(node: NodeFacts, suite: Suite, name: str) -> float:
    """Return the maximum memory of a fingerprint of a named suite."""
    wanted = set(suite.names_of(name))
    sizes = sum(
        known.size_bytes or 0
        for known in suite.surrogates
        if known.name in wanted and known.family in _IN_MEMORY
    )
    return min(float(sizes), MEMORY_SHARE * memory_limit_bytes(node))


class Meter:
    """The cost of the probes of this process from now on; those that failed have one, too."""

    def __init__(self) -> None:
        self._before, self._largest = _spent(), _largest_child_bytes()
        self._began = time.monotonic()

    def cost(self) -> Cost:
        """Return what was spent so far by children that have ended."""
        after = _spent()
        return Cost(
            after.cpu_s - self._before.cpu_s,
            time.monotonic() - self._began,
            max(0.0, after.written_bytes - self._before.written_bytes),
        )

    def peak_bytes(self) -> int | None:
        """Return the resident memory of the largest process among them; None if another child of
        this process had more before, such as an earlier probe or a campaign."""
        largest = _largest_child_bytes()
        return largest if largest > self._largest else None


class Prober:
    """Fingerprints of one node with one suite.

    In a quick one, surrogates that write get a shorter window of their own, also under a CPU quota:
    on a fast disk the full one would write a hundred megabytes each time. Without a write budget,
    their recent last readings are repeated without timed work, with a warning.
    """

    def __init__(
        self, node: NodeFacts, suite: Suite, io_dir: Path, *, write_s: float, carry_s: float
    ) -> None:
        self.node, self.suite, self._io_dir = node, suite, io_dir
        self._write_s, self._carry_s = write_s, carry_s
        self._written: dict[int, tuple[float, dict[str, Reading]]] = {}

    def take(
        self,
        probe: Probe,
        cpu: int,
        on_progress: Callable[[Progress], None] | None = None,
        *,
        coupling: bool = False,
    ) -> Taken:
        """Take a fingerprint, with the ``coupling`` to an idle CPU if that is true.

        Raises:
            ProbeError: nothing was measured.
        """
        meter = Meter()
        if probe.suite == "standard":
            fingerprint = self._timed("standard", cpu, None, None, on_progress)
        else:
            fingerprint = self._quick(probe, cpu, on_progress)
        if coupling:
            fingerprint = with_coupling(fingerprint, self.suite, "kongming-agent")
        return Taken(fingerprint, meter.cost())

    def _quick(
        self, probe: Probe, cpu: int, on_progress: Callable[[Progress], None] | None
    ) -> Fingerprint:
        names = self.suite.names_of("quick")
        families = {known.name: known.family for known in self.suite.surrogates}
        writing = tuple(name for name in names if families[name] in WRITING)
        others = tuple(name for name in names if name not in writing)
        if not writing or not others:
            return self._timed("quick", cpu, None, None, on_progress)
        fingerprint = self._timed("quick", cpu, others, WINDOWS_S["quick"], on_progress)
        now = time.monotonic()
        warnings: tuple[str, ...] = ()
        if probe.writes:
            # Given, since under a quota each of them would write for a third of a second.
            chunk = self._write_s / len(writing)
            second = self._timed(
                "quick", cpu, writing, self._write_s, on_progress, rounds=1, chunk=chunk
            )
            readings = dict(second.surrogates)
            warnings = tuple(each for each in second.warnings if each not in fingerprint.warnings)
            elapsed = fingerprint.elapsed_s + second.elapsed_s
            sound = {name: reading for name, reading in readings.items() if reading.ok}
            self._written[probe.domain] = (now, sound)
        else:
            readings, words = self._carried(probe.domain, writing, families, now)
            warnings = (words,)
            elapsed = fingerprint.elapsed_s
        every = {**fingerprint.surrogates, **readings}
        return replace(
            fingerprint,
            suite="quick",
            elapsed_s=elapsed,
            surrogates={name: every[name] for name in names},
            warnings=(*fingerprint.warnings, *warnings),
        )

    def _carried(
        self, domain: int, names: tuple[str, ...], families: Mapping[str, str], now: float
    ) -> tuple[dict[str, Reading], str]:
        at, earlier = self._written.get(domain, (now, {}))
        young = earlier if now - at <= self._carry_s else {}
        readings = {}
        for name in names:
            if name in young:
                readings[name] = replace(young[name], n=0, ops=0, elapsed_s=0.0, partial=True)
            else:
                readings[name] = Reading(name=name, family=families[name], error=_LEFT_OUT)
        carried = [name for name in names if name in young]
        if not carried:
            return readings, "Surrogates that write were left out, to write less."
        reason = f"Repeated from {now - at:.0f} s before, to write less: {', '.join(carried)}."
        return readings, reason

    def _timed(
        self,
        suite: str,
        cpu: int,
        names: tuple[str, ...] | None,
        seconds: float | None,
        on_progress: Callable[[Progress], None] | None,
        *,
        rounds: int | None = None,
        chunk: float | None = None,
    ) -> Fingerprint:
        return take_fingerprint(
            node=self.node,
            suite=suite,
            names=names,
            cpu=cpu,
            directory=self._io_dir,
            seconds=seconds,
            chunk=chunk,
            rounds=rounds,
            on_progress=on_progress,
        )


def _largest_child_bytes() -> int:
    """Return the largest resident memory of a child that has ended, and of its children: of all
    since this process began, since the kernel tells no other."""
    return resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024


def _spent() -> Cost:
    """Return the CPU time of ended children, and the bytes written by this process and them."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return Cost(usage.ru_utime + usage.ru_stime, 0.0, written_bytes())


def written_bytes(pid: int | None = None) -> float:
    """Return the bytes that a process and its ended children have sent to disks; 0 if unknown."""
    try:
        with open(f"/proc/{pid or os.getpid()}/io", encoding="ascii") as lines:  # noqa: PTH123
            for line in lines:
                if line.startswith("write_bytes:"):
                    return float(line.split()[1])
    except OSError:
        pass
    return 0.0
