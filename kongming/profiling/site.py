"""Where a campaign measures: the node, the seats of program and neighbour, and the I/O folder."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from kongming.fingerprint import NodeFacts
from kongming.probes.suite import Suite
from kongming.profiling.cgroups import SiblingGroups
from kongming.profiling.placement import Seats


@dataclass(frozen=True, slots=True)
class Site:
    """Everything that a measurement needs to know about where it happens.

    ``app_procs`` and ``load_procs`` are the cgroup files that the program and its neighbour
    enter; empty where none are needed or none can be written.
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
    def shared_core(self) -> bool:
        return self.placement == "same-core"


@contextmanager
def sharing(site: Site) -> Iterator[Site]:
    """The site with sibling cgroups of equal weight where program and neighbour share a core.

    Without them the scheduler would weigh processes, and a neighbour with two would get twice
    the time of a program with one. Where they cannot be written the site says so.
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
