"""The facts of this node for a command, with the checks that a placement needs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from kongming.records.fingerprint import NodeFacts


def measured_node(placement: str, sizes: Iterable[int] = (1,)) -> NodeFacts:
    """Return the facts of this node; for two CPUs, measure whether they share a core. Virtual
    machines hide this, so the kernel's topology is checked once (about a second a pair; the result
    is stored) for the CPUs of the placement, of applications with so many CPUs (``sizes``).

    Raises:
        InputError: this node does not have the placement.
        ProbeError: the micro-benchmarks cannot be run.
    """
    from kongming.probes.node import node_facts
    from kongming.probes.topology import measure_siblings
    from kongming.profiling.plans.placement import choose

    node = node_facts()
    if placement == "same-core":
        return node
    for size in sorted(set(sizes)):
        # If the measurement rejects a candidate, the next one is checked.
        for _ in range(len(node.cpus) ** 2):
            seats = choose(node, placement, size)
            # Of the others only the first CPU has to share a core with its neighbour, or not to.
            cpus = seats.app if placement == "cross-core" else seats.app[:1]
            pairs = [tuple(sorted((cpu, seats.neighbour))) for cpu in cpus]
            unknown = next((p for p in pairs if f"{p[0]},{p[1]}" not in node.siblings), None)
            if unknown is None:
                break
            # Results that could not be stored are not among those that come back.
            siblings = {**node.siblings, **measure_siblings(node.id, unknown)}
            node = replace(node, siblings=siblings)
    return node
