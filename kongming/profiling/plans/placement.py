"""Selection of CPUs for a program and its neighbour, from a node's facts. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from kongming.records.errors import InputError, UnknownNameError
from kongming.records.fingerprint import PLACEMENTS, NodeFacts


@dataclass(frozen=True, slots=True)
class Seats:
    """CPUs of the application, and the CPU of its neighbour."""

    app: tuple[int, ...]
    neighbour: int

    def __str__(self) -> str:
        several = "CPUs" if len(self.app) > 1 else "CPU"
        return f"on {several} {', '.join(map(str, self.app))} (neighbour: {self.neighbour})"


def choose(node: NodeFacts, placement: str, app_cpus: int = 1) -> Seats:
    """Choose CPUs for an application of ``app_cpus`` CPUs; the lowest numbers that fit.

    The placement relates the neighbour to the application's first CPU; in addition, no CPU of
    the application shares a core with a ``cross-core`` neighbour, or a socket with a
    ``cross-socket`` one. Measured core sharing takes precedence over the kernel's topology.

    Raises:
        UnknownNameError: there is no such placement.
        InputError: it is not possible on this node; says why, and which are.
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
        value=placement,
        allowed=", ".join(possible) or "none for this many CPUs",
        hint=f"Choose another one: --placement {possible[0]}"
        if possible
        else "Give the application fewer 'cpus' in its file.",
    )


def layouts_of(node: NodeFacts, placement: str, sizes: Mapping[str, int]) -> dict[str, str]:
    """Return what the seats of each application share, by its number of CPUs (``sizes``), where
    that is not the usual: the program's CPUs are cores of their own under one cache, and the
    neighbour is apart from them only as the placement says.

    Equal for CPUs of other numbers, since these are never the same for long on a cluster: for each
    CPU of the program, and then the neighbour's, core, cache and socket, numbered in this order.

    Raises:
        InputError: the node does not have the placement for one of them.
    """
    layouts = {}
    for name, size in sorted(sizes.items()):
        # With one CPU it is what the placement says.
        if size > 1 and (layout := _layout(node, placement, size)) != _usual(placement, size):
            layouts[name] = layout
    return layouts


def _layout(node: NodeFacts, placement: str, size: int) -> str:
    seats = choose(node, placement, size)
    cpus = [*seats.app, seats.neighbour]
    numbers = (
        _numbers(cpus, lambda a, b: shares_core(node, a, b)),
        _numbers(cpus, lambda a, b: shares_cache(node, a, b)),
        _numbers(cpus, lambda a, b: _socket(node, a) == _socket(node, b)),
    )
    return " ".join(".".join(map(str, each)) for each in zip(*numbers, strict=True))


def _usual(placement: str, size: int) -> str:
    core = 0 if placement in ("same-core", "smt-sibling") else size
    apart = 1 if placement == "cross-socket" else 0
    return " ".join([*(f"{k}.0.0" for k in range(size)), f"{core}.{apart}.{apart}"])


def _numbers(cpus: Sequence[int], alike: Callable[[int, int], bool]) -> list[int]:
    """Number the groups of CPUs that are alike, in the order of their first ones."""
    groups: list[int] = []
    numbers = []
    for cpu in cpus:
        number = next((k for k, first in enumerate(groups) if alike(first, cpu)), len(groups))
        if number == len(groups):
            groups.append(cpu)
        numbers.append(number)
    return numbers


def available(node: NodeFacts, app_cpus: int = 1) -> dict[str, str | None]:
    """Return each placement with None if it is possible on this node, else the reason."""
    return {
        placement: None
        if _search(node, placement, app_cpus) is not None
        else _reason(node, placement, app_cpus)
        for placement in PLACEMENTS
    }


def shares_core(node: NodeFacts, a: int, b: int) -> bool:
    """Return whether two CPUs are threads of one core: measured, else as reported by the kernel."""
    if a == b:
        return True
    measured = node.siblings.get(f"{min(a, b)},{max(a, b)}")
    if measured is not None and isinstance(measured.get("shares_core"), bool):
        return bool(measured["shares_core"])
    first, second = node.cores.get(str(a)), node.cores.get(str(b))
    # Core numbers are unique only within a socket.
    return first is not None and first == second and _socket(node, a) == _socket(node, b)


def shares_cache(node: NodeFacts, a: int, b: int) -> bool:
    """Return whether two CPUs share the last-level cache; if unknown, whether they share a
    socket."""
    for group in node.llc_cpus:
        if a in group or b in group:
            return a in group and b in group
    return _socket(node, a) == _socket(node, b)


def _socket(node: NodeFacts, cpu: int) -> int:
    return node.sockets.get(str(cpu), 0)


def _related(node: NodeFacts, placement: str, first: int, neighbour: int) -> bool:
    """Return whether ``neighbour`` has this placement relative to the application's first CPU."""
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
    """Return a predicate for the application's further CPUs, given this neighbour."""
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
    """Sort: same socket first, then free cores before second threads, then shared cache."""
    free_cores: set[int] = set()
    for cpu in others:
        if not any(shares_core(node, cpu, used) for used in (first, *free_cores)):
            free_cores.add(cpu)
    return sorted(
        others,
        key=lambda cpu: (
            _socket(node, cpu) != _socket(node, first),
            cpu not in free_cores,
            not shares_cache(node, first, cpu),
            cpu,
        ),
    )


def _reason(node: NodeFacts, placement: str, app_cpus: int) -> str:
    count = len(node.cpus)
    # Those that this process may use: taskset or a control group may hide others.
    size = "one CPU" if count == 1 else f"{count} CPUs"
    if app_cpus < 1:
        return "an application has at least one CPU"
    if app_cpus > count:
        return f"the application uses {app_cpus} CPUs and this process may use {size}"
    if count == 1:
        return "this process may use one CPU of this node"
    if app_cpus > 1 and _search(node, placement, 1) is not None:
        return f"an application of {app_cpus} CPUs leaves no such CPU of this node's {size}"
    if placement == "smt-sibling":
        source = "measured" if node.siblings else "as reported by the kernel"
        return f"no two CPUs of this node share a core ({source})"
    if placement == "cross-core":
        return "no two cores of this node share a last-level cache"
    return "this node has one socket"
