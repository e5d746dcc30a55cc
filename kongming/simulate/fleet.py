"""The simulated nodes that jobs are placed on, by node kind."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from kongming.files.csv_rows import read_rows
from kongming.records.errors import InputError

COLUMNS = ("name", "nodes", "slots", "speed", "weight")

MOST_NODES = 1_000_000
MOST_SLOTS = 64


@dataclass(frozen=True, slots=True)
class Kind:
    """``nodes`` identical nodes: job slots per node, speed relative to the node of the solo times,
    and Slurm weight (lower weights are filled first)."""

    name: str
    nodes: int
    slots: int = 2
    speed: float = 1.0
    weight: float = 1.0


@dataclass(frozen=True, slots=True)
class Fleet:
    """All nodes, numbered consecutively in the order of their kinds."""

    kinds: tuple[Kind, ...]

    def __post_init__(self) -> None:
        if not self.kinds:
            raise InputError("A fleet needs at least one node.", field="nodes")
        for kind in self.kinds:
            for name, value, maximum in (
                ("nodes", kind.nodes, MOST_NODES),
                ("slots", kind.slots, MOST_SLOTS),
            ):
                if not 1 <= value <= maximum:
                    raise InputError(
                        "is out of range.", field=name, value=value, allowed=f"1 to {maximum}"
                    )
        if self.nodes > MOST_NODES:
            raise InputError(
                "are too many.", field="nodes", value=self.nodes, allowed=f"up to {MOST_NODES}"
            )

    @property
    def nodes(self) -> int:
        return sum(kind.nodes for kind in self.kinds)

    @property
    def slots(self) -> int:
        return sum(kind.nodes * kind.slots for kind in self.kinds)

    @property
    def capacity(self) -> float:
        """Solo seconds of work that all slots complete per second without interference."""
        return sum(kind.nodes * kind.slots * kind.speed for kind in self.kinds)

    def kind_of(self) -> list[int]:
        """Index of each node's kind in ``kinds``: of kinds that differ by name only, the first, so
        that a fleet of a row for each node has as few node states as there are different nodes."""
        first: dict[tuple[int, float, float], int] = {}
        return [
            first.setdefault((kind.slots, kind.speed, kind.weight), index)
            for index, kind in enumerate(self.kinds)
            for _ in range(kind.nodes)
        ]


def alike(nodes: int, slots: int) -> Fleet:
    """Build a fleet of identical nodes of speed 1."""
    return Fleet((Kind("node", nodes, slots),))


def read_fleet(path: Path) -> Fleet:
    """Read a fleet from a CSV with a header: name, nodes, and optionally slots, speed, weight.

    Raises:
        InputError: the file cannot be read, or a cell is out of range (with row and column).
    """
    kinds = []
    for row in read_rows(path, COLUMNS[:2], COLUMNS):
        slots = row.number_in("slots", least=1, integer=True) if row.text("slots") else 2.0
        kinds.append(
            Kind(
                name=row.name("name"),
                nodes=int(row.number_in("nodes", least=1, integer=True)),
                slots=int(slots),
                speed=row.optional("speed") or 1.0,
                weight=row.number_in("weight") if row.text("weight") else 1.0,
            )
        )
    if not kinds:
        raise InputError(f"{path} has a header but no rows.")
    return Fleet(tuple(kinds))
