"""Which CPUs a program and its neighbour get for a placement. Pure: from the facts of a node."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from kongming.errors import InputError, UnknownNameError
from kongming.fingerprint import PLACEMENTS, NodeFacts


@dataclass(frozen=True, slots=True)
class Seats:
    """The CPUs of the application and the CPU of its neighbour."""

    app: tuple[int, ...]
    neighbour: int


def choose(node: NodeFacts, placement: str, app_cpus: int = 1) -> Seats:
    """Seats for an application of ``app_cpus`` CPUs; the lowest CPU numbers that fit.

    The neighbour's relation is to the application's first CPU; beyond that no CPU of the
    application shares a core with a ``cross-core`` neighbour, or a socket with a
    ``cross-socket`` one. What was measured about two CPUs counts more than what the kernel says.

    Raises:
        UnknownNameError: there is no such placement.
        InputError: it cannot exist on this node; says why, and which can.
    """
    if placement not in PLACEMENTS:
        raise UnknownNameError("placement", placement, PLACEMENTS)
    seats = _search(node, placement, app_cpus)
    if seats is not None:
        return seats
    possible = [name for name, reason in available(node, app_cpus).items() if reason is None]
    raise InputError(
        f"cannot exist here: {_reason(node, placement, app_cpus)}.",
        field="placement",
        found=placement,
        allowed=", ".join(possible) or "none for this many CPUs",
    )


def available(node: NodeFacts, app_cpus: int = 1) -> dict[str, str | None]:
    """Each placement with None when it can exist on this node, else the reason in words."""
    return {
        placement: None
        if _search(node, placement, app_cpus) is not None
        else _reason(node, placement, app_cpus)
        for placement in PLACEMENTS
    }


def shares_core(node: NodeFacts, a: int, b: int) -> bool:
    """Whether two CPUs are threads of one core: as measured, else as the kernel tells."""
    if a == b:
        return True
    measured = node.siblings.get(f"{min(a, b)},{max(a, b)}")
    if measured is not None and isinstance(measured.get("shares_core"), bool):
        return bool(measured["shares_core"])
    first, second = node.cores.get(str(a)), node.cores.get(str(b))
    # Core numbers are counted anew in each socket.
    return first is not None and first == second and _socket(node, a) == _socket(node, b)


def shares_cache(node: NodeFacts, a: int, b: int) -> bool:
    """Whether two CPUs share the last-level cache; where that is not told, the socket stands in."""
    for group in node.llc_cpus:
        if a in group or b in group:
            return a in group and b in group
    return _socket(node, a) == _socket(node, b)


def _socket(node: NodeFacts, cpu: int) -> int:
    return node.sockets.get(str(cpu), 0)


def _related(node: NodeFacts, placement: str, first: int, neighbour: int) -> bool:
    """Whether ``neighbour`` is placed so relative to the application's first CPU."""
    match placement:
        case "same-core":
            return neighbour == first
        case "smt-sibling":
            return neighbour != first and shares_core(node, first, neighbour)
        case "cross-core":
            return not shares_core(node, first, neighbour) and shares_cache(node, first, neighbour)
        case _:
            return _socket(node, first) != _socket(node, neighbour)


def _admits(node: NodeFacts, placement: str, neighbour: int) -> Callable[[int], bool]:
    """Which further CPUs the application may have beside this neighbour."""
    match placement:
        case "same-core" | "smt-sibling":
            return lambda cpu: cpu != neighbour
        case "cross-core":
            return lambda cpu: not shares_core(node, cpu, neighbour)
        case _:
            return lambda cpu: _socket(node, cpu) != _socket(node, neighbour)


def _search(node: NodeFacts, placement: str, app_cpus: int) -> Seats | None:
    cpus = sorted(node.cpus)
    if not 1 <= app_cpus <= len(cpus):
        return None
    for first in cpus:
        for neighbour in cpus:
            if not _related(node, placement, first, neighbour):
                continue
            if app_cpus == 1:
                return Seats((first,), neighbour)
            admits = _admits(node, placement, neighbour)
            others = [cpu for cpu in cpus if cpu != first and admits(cpu)]
            if len(others) >= app_cpus - 1:
                return Seats((first, *_nearest(node, first, others)[: app_cpus - 1]), neighbour)
    return None


def _nearest(node: NodeFacts, first: int, others: list[int]) -> list[int]:
    """On the same socket first; there whole cores before second threads, then by cache."""
    whole: set[int] = set()
    for cpu in others:
        if not any(shares_core(node, cpu, taken) for taken in (first, *whole)):
            whole.add(cpu)
    return sorted(
        others,
        key=lambda cpu: (
            _socket(node, cpu) != _socket(node, first),
            cpu not in whole,
            not shares_cache(node, first, cpu),
            cpu,
        ),
    )


def _reason(node: NodeFacts, placement: str, app_cpus: int) -> str:
    count = len(node.cpus)
    has = "one CPU" if count == 1 else f"{count} CPUs"
    if app_cpus < 1:
        return "an application has at least one CPU"
    if app_cpus > count:
        return f"the application uses {app_cpus} CPUs and this node has {has}"
    if count == 1:
        return "this node has one CPU"
    if app_cpus > 1 and _search(node, placement, 1) is not None:
        return f"none of this node's {has} is left there beside an application of {app_cpus} CPUs"
    if placement == "smt-sibling":
        how = "as measured" if node.siblings else "as the kernel tells"
        return f"no two CPUs of this node share a core ({how})"
    if placement == "cross-core":
        return "no two cores of this node share a last-level cache"
    return "this node has one socket"
