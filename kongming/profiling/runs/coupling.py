"""The coupling probe: what the machine lets one CPU do to another at this moment.

A host may move virtual CPUs on and off a shared cache within seconds; the same two programs then
disturb each other, or do not. A pointer chase over 8 MiB is timed on the program's CPU, alone and
while a stream runs on the neighbour's: their ratio is the coupling.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from kongming.probes.measuring import measuring
from kongming.probes.passive import busy_shares, cpu_ticks
from kongming.probes.suite import Suite
from kongming.probes.two_cpus import alone_and_together
from kongming.profiling.plans.placement import shares_cache, shares_core
from kongming.profiling.site import Site
from kongming.records.errors import KongmingError, MeasurementError, UnknownNameError
from kongming.records.fingerprint import COUPLING, Fingerprint, NodeFacts

CHASE, STREAM = "memory.random.8M", "stream.triad"

EACH_S = 0.05
"""Time of the chase alone, and as long next to the stream: some ten passes over its set each."""

MOST_ARRAY_BYTES = 128 << 20
"""Limit of each of the stream's three arrays, whose set-up takes a tenth of a second or two then:
the largest caches are of hosts, and a guest has a share of them."""

LEAST_GAP_S = 5.0
"""A reading younger than this is not repeated in a campaign, so that short runs do not spend more
time on it than on themselves."""

IDLE = 0.1
"""A CPU that is busy for a larger share of LOOK_S is not idle."""

LOOK_S = 0.1


def measure_coupling(node: NodeFacts, suite: Suite, cpu: int, neighbour: int) -> float:
    """Return the coupling of two CPUs: about 1 if ``neighbour`` has no effect on ``cpu``.

    Raises:
        UnknownNameError: this node has no memory for chase or stream.
        ProbeError: one of them failed.
    """
    for name in (CHASE, STREAM):
        suite.surrogate(name)
    # STREAM's rule is four times the cache for each array. One time for each of three displaces as
    # much, and takes a quarter of the time to set up.
    each = min(node.llc_bytes, MOST_ARRAY_BYTES)
    options = [*suite.arguments, "--llc", str(each // 4)]
    alone, together = alone_and_together(
        CHASE, cpu, STREAM, neighbour, seconds=EACH_S, options=options
    )
    return together / alone


@dataclass(slots=True)
class CouplingLog:
    """The newest coupling by pair of CPUs (program, neighbour), in a campaign."""

    clock: Callable[[], float] = time.monotonic
    _newest: dict[tuple[int, int], tuple[float, Mapping[str, float]]] = field(default_factory=dict)

    def read(self, site: Site) -> tuple[Mapping[str, float], Site]:
        """Measure the coupling at a site, whose neighbour's CPU must be idle yet.

        Returns:
            The passive signal for what is measured next: from now, or from less than LEAST_GAP_S
            ago; none on a shared core, or where it cannot be measured. And the site, with a warning
            if the probe failed.
        """
        if site.placement != "cross-core":
            return {}, site
        seats = (site.app_cpus[0], site.neighbour_cpu)
        at, signals = self._newest.get(seats, (None, {}))
        if at is not None and self.clock() - at < LEAST_GAP_S:
            return signals, site
        try:
            signals = {COUPLING: measure_coupling(site.node, site.suite, *seats)}
        except UnknownNameError:
            signals = {}
        except MeasurementError as error:
            signals = {}
            warning = f"the coupling was not measured: {error.message}"
            site = replace(site, warnings=(*site.warnings, warning))
        self._newest[seats] = (self.clock(), signals)
        return signals, site


def neighbours_of(node: NodeFacts, cpu: int) -> tuple[int, ...]:
    """Return the CPUs that share the last-level cache with ``cpu``, but no core. Pure."""
    return tuple(
        other
        for other in node.cpus
        if shares_cache(node, cpu, other) and not shares_core(node, cpu, other)
    )


def with_coupling(fingerprint: Fingerprint, suite: Suite, command: str) -> Fingerprint:
    """Return a fingerprint that has just been taken with the coupling of its CPU and the least busy
    of its neighbours among its passive signals, or with the reason why it was not measured among
    its warnings: only idle CPUs are loaded. It is unchanged where there are no two such CPUs.

    ``command`` is what other measurements read, none of which is disturbed.
    """
    node, cpu = fingerprint.node, fingerprint.cpu
    if not (neighbours := neighbours_of(node, cpu)):
        return fingerprint
    before = cpu_ticks()
    time.sleep(LOOK_S)
    busy = busy_shares(before, cpu_ticks())
    neighbour = min(neighbours, key=lambda other: (round(busy.get(other, 1.0), 2), other))
    for each in (cpu, neighbour):
        if busy.get(each, 1.0) > IDLE:
            return _uncoupled(fingerprint, f"CPU {each} is not idle")
    try:
        with measuring(command, (neighbour,), patience_s=0.0):
            coupling = measure_coupling(node, suite, cpu, neighbour)
    except KongmingError as error:
        return _uncoupled(fingerprint, error.message.removesuffix("."))
    return replace(fingerprint, passive={**fingerprint.passive, COUPLING: coupling})


def _uncoupled(fingerprint: Fingerprint, reason: str) -> Fingerprint:
    warning = f"The coupling was not measured: {reason}."
    return replace(fingerprint, warnings=(*fingerprint.warnings, warning))
