"""This node's facts for a command, with what a placement needs to be sure of."""

from __future__ import annotations

from dataclasses import replace

from kongming.records.fingerprint import NodeFacts


def measured_node(placement: str) -> NodeFacts:
    """The facts of this node; where two CPUs are needed, it is measured whether they share a core.

    Virtual machines hide which CPUs do, so the kernel's word is checked once (about a second;
    kept for the next time) for the CPUs that the placement would take.

    Raises:
        InputError: the placement cannot exist here.
        ProbeError: the micro-benchmarks cannot be run.
    """
    from kongming.probes.node import node_facts
    from kongming.probes.topology import measure_siblings
    from kongming.profiling.plans.placement import choose

    node = node_facts()
    if placement == "same-core":
        return node
    # A measurement can turn one candidate down, and then the next one is looked at.
    for _ in range(len(node.cpus)):
        seats = choose(node, placement)
        pair = tuple(sorted((seats.app[0], seats.neighbour)))
        if f"{pair[0]},{pair[1]}" in node.siblings:
            break
        node = replace(node, siblings=measure_siblings(node.id, pair))
    return node
