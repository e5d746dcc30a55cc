"""The facts of this node for a command, with the checks that a placement needs."""

from __future__ import annotations

from dataclasses import replace

from kongming.records.fingerprint import NodeFacts


def measured_node(placement: str) -> NodeFacts:
    """Return the facts of this node; for two CPUs, measure whether they share a core. Virtual
    machines hide this, so the kernel's topology is checked once (about a second; the result is
    stored) for the CPUs of the placement.

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
    # If the measurement rejects a candidate, the next one is checked.
    for _ in range(len(node.cpus)):
        seats = choose(node, placement)
        pair = tuple(sorted((seats.app[0], seats.neighbour)))
        if f"{pair[0]},{pair[1]}" in node.siblings:
            break
        node = replace(node, siblings=measure_siblings(node.id, pair))
    return node
