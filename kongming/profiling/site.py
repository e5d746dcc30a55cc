"""Measurement site of a campaign: node, CPUs of program and neighbour, and I/O folder."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from kongming.probes.suite import Suite
from kongming.profiling.plans.placement import Seats
from kongming.profiling.seat_groups import SiblingGroups
from kongming.records.fingerprint import NodeFacts


@dataclass(frozen=True, slots=True)
class Site:
    """Location and conditions of a measurement.

    ``app_procs`` and ``load_procs`` are the cgroup files that the program and its neighbour
    enter; empty if none are needed or none can be written.
    """

    node: NodeFacts
    suite: Suite
    placement: str
    seats: Seats
    io_dir: Path
    app_procs: tuple[Path, ...] = ()
    load_procs: tuple[Path, ...] = ()
    warnings: tuple[str, ...] = ()

    @property
    def app_cpus(self) -> tuple[int, ...]:
        return self.seats.app

    @property
    def neighbour_cpu(self) -> int:
        return self.seats.neighbour

    @property
    def other_cpu(self) -> int | None:
        """The neighbour's CPU, if it is not the program's own."""
        return None if self.shared_core else self.neighbour_cpu

    def warned(self, *warnings: str) -> Site:
        """Return the site with further warnings."""
        return replace(self, warnings=(*self.warnings, *warnings)) if warnings else self

    @property
    def shared_core(self) -> bool:
        return self.placement == "same-core"


@contextmanager
def sharing(site: Site) -> Iterator[Site]:
    """Yield the site with sibling cgroups of equal weight if program and neighbour share a core.

    Without them the scheduler weighs processes, and a neighbour with two would get twice the
    time of a program with one. If they cannot be written, the site has a warning.
    """
    if not site.shared_core:
        yield site
        return
    with SiblingGroups() as groups:
        if groups.active:
            yield replace(site, app_procs=groups.app_procs, load_procs=groups.load_procs)
        else:
            warning = f"no sibling cgroups of equal weight: {groups.reason}"
            yield replace(site, warnings=(*site.warnings, warning))
