"""The facts of this node for a command, with the checks that a placement needs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from kongming.records.fingerprint import NodeFacts


def measured_node(
    placement: str, sizes: Iterable[int] = (1,), *, anyway: bool | None = None
) -> NodeFacts:
    """Return the facts of this node; for two CPUs, measure whether they share a core. Virtual
    machines hide this, so the kernel's topology is checked once (about a second a pair; the result
    is stored) for the CPUs of the placement, of applications with so many CPUs (``sizes``). Each
    check holds the locks of its two CPUs; ``anyway`` as in ``measuring``.

    Raises:
        InputError: this node does not have the placement.
        ProbeError: the micro-benchmarks cannot be run.
        BusyError: something else measures there, and ``anyway`` is not true.
    """
    from kongming.probes.node import node_facts
    from kongming.probes.topology import DISTURBED, measure_siblings

    node = node_facts()
    patience_s = None
    # If the measurement rejects a candidate, the next one is checked.
    while (pair := unchecked_pair(node, placement, sizes)) is not None:
        checked = measure_siblings(node.id, pair, anyway=anyway, patience_s=patience_s)
        # Who was not waited for is not waited for again.
        if any(result.get(DISTURBED) for result in checked.values()):
            patience_s = 0.0
        # Results that could not be stored are not among those that come back.
        node = replace(node, siblings={**node.siblings, **checked})
    return node


def unchecked_pair(
    node: NodeFacts, placement: str, sizes: Iterable[int] = (1,)
) -> tuple[int, int] | None:
    """Return two CPUs of the placement of which was not measured whether they share a core, None
    where nothing is left to measure. Pure.

    Raises:
        InputError: the node does not have the placement.
    """
    from kongming.profiling.plans.placement import choose

    if placement == "same-core":
        return None
    for size in sorted(set(sizes)):
        seats = choose(node, placement, size)
        # Of the others only the first CPU has to share a core with its neighbour, or not to.
        for cpu in seats.app if placement == "cross-core" else seats.app[:1]:
            first, second = sorted((cpu, seats.neighbour))
            if f"{first},{second}" not in node.siblings:
                return first, second
    return None


def unchecked_text(pair: tuple[int, int]) -> str:
    """Return what is said of a pair that is not measured in a dry run."""
    return (
        f"It is not known yet whether CPUs {pair[0]} and {pair[1]} share a core: that is measured "
        "before the first run, in about a second; if it rules them out, others are measured too."
    )
