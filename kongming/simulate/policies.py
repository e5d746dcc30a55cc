"""Which node a job is given: one policy each, by the state of the nodes and never node by node."""

from __future__ import annotations

import abc
import heapq
from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from kongming.simulate.fleet import Fleet
from kongming.simulate.states import States

__all__ = [
    "NOWHERE",
    "Bag",
    "Exclusive",
    "FirstFit",
    "LeastLoaded",
    "Policy",
    "RandomNode",
    "SlurmBestFit",
    "World",
]

NOWHERE = -1


@dataclass(frozen=True, eq=False, slots=True)
class World:
    """What policies are made of: the fleet, its states, and a source of chance of their own."""

    fleet: Fleet
    states: States
    random: Random


class Policy(abc.ABC):
    """Keeps an index of the nodes; the replay tells it of every node whose state changes.

    ``selective``: it may leave a job waiting although a slot is free. Jobs then wait class by
    class; else in one queue. ``yields``: for a job that has waited too long it lets limits go.
    """

    selective = False
    yields = False

    @abc.abstractmethod
    def moved(self, node: int, state: int) -> None:
        """The node is in ``state`` now; called for each node before the first job."""

    @abc.abstractmethod
    def choose(self, job_class: int, *, forced: bool = False) -> int:
        """A node with a free slot, or NOWHERE. ``forced``: limits no longer count."""

    def admits(self, job_class: int, state: int) -> bool:
        """Whether a node in this state, with a slot free, may be given to such a job."""
        return True

    def cost(self, job_class: int, state: int) -> float:
        """How badly they fit: what orders waiting jobs where the best fit is taken first."""
        return 0.0


class Bag:
    """Nodes to draw from: adding, removing and drawing take the same time however many."""

    def __init__(self) -> None:
        self._nodes: list[int] = []
        self._place: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self._nodes)

    def add(self, node: int) -> None:
        self._place[node] = len(self._nodes)
        self._nodes.append(node)

    def remove(self, node: int) -> None:
        place = self._place.pop(node)
        last = self._nodes.pop()
        if last != node:
            self._nodes[place] = last
            self._place[last] = place

    def draw(self, random: Random) -> int:
        return self._nodes[int(random.random() * len(self._nodes))]


class _ByGroup(Policy):
    """Nodes in bags by a number that their state gives them; -1 is for none."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._bags: dict[int, Bag] = {}
        self._group_of = [NOWHERE] * world.fleet.nodes
        self._groups: list[int] = []

    def group(self, state: int) -> int:
        raise NotImplementedError

    def moved(self, node: int, state: int) -> None:
        groups = self._groups
        while len(groups) <= state:
            free = self._world.states.free[len(groups)]
            groups.append(self.group(len(groups)) if free > 0 else NOWHERE)
        now, before = groups[state], self._group_of[node]
        if now == before:
            return
        if before != NOWHERE:
            self._bags[before].remove(node)
        if now != NOWHERE:
            bag = self._bags.get(now)
            if bag is None:
                bag = self._bags[now] = Bag()
            bag.add(node)
        self._group_of[node] = now

    def choose(self, job_class: int, *, forced: bool = False) -> int:
        # Few groups: one for each number of residents at the most.
        best = min((group for group, bag in self._bags.items() if len(bag)), default=NOWHERE)
        return NOWHERE if best == NOWHERE else self._bags[best].draw(self._world.random)


class RandomNode(_ByGroup):
    """Any node with a free slot, each as likely as the other."""

    def group(self, state: int) -> int:
        return 0


class LeastLoaded(_ByGroup):
    """One of those with the smallest share of slots in use (Slurm's CR_LLN)."""

    def group(self, state: int) -> int:
        states = self._world.states
        slots = self._world.fleet.kinds[states.kind[state]].slots
        return states.count[state] * 1_000_000 // slots


class Exclusive(_ByGroup):
    """Only idle nodes: nobody has a neighbour (Slurm's select/linear)."""

    selective = True

    def group(self, state: int) -> int:
        return NOWHERE if self._world.states.count[state] else 0

    def admits(self, job_class: int, state: int) -> bool:
        return self._world.states.count[state] == 0


class _InOrder(Policy):
    """Nodes in heaps by their order; entries that are no longer true are dropped when met."""

    def __init__(self, world: World, rank: Callable[[int], tuple[float, int]]) -> None:
        self._free = world.states.free
        self._rank = rank
        self._heaps: dict[tuple[float, int], list[int]] = {}
        self._inside: dict[tuple[float, int], bytearray] = {}
        self._now: list[tuple[float, int] | None] = [None] * world.fleet.nodes
        self._ranks: list[tuple[float, int] | None] = []
        self._order: list[tuple[float, int]] = []

    def moved(self, node: int, state: int) -> None:
        ranks = self._ranks
        while len(ranks) <= state:
            ranks.append(self._rank(len(ranks)) if self._free[len(ranks)] > 0 else None)
        rank = ranks[state]
        self._now[node] = rank
        if rank is None:
            return
        inside = self._inside.get(rank)
        if inside is None:
            inside = self._inside[rank] = bytearray(len(self._now))
            self._heaps[rank] = []
            self._order = sorted(self._heaps)
        if not inside[node]:
            inside[node] = 1
            heapq.heappush(self._heaps[rank], node)

    def choose(self, job_class: int, *, forced: bool = False) -> int:
        now = self._now
        for rank in self._order:
            heap = self._heaps[rank]
            while heap:
                node = heap[0]
                if now[node] == rank:
                    return node
                heapq.heappop(heap)
                self._inside[rank][node] = 0
        return NOWHERE


class FirstFit(_InOrder):
    """The lowest weight, then the first in node order that has a free slot."""

    def __init__(self, world: World) -> None:
        kinds, kind = world.fleet.kinds, world.states.kind
        super().__init__(world, lambda state: (kinds[kind[state]].weight, 0))


class SlurmBestFit(_InOrder):
    """The lowest weight, then the fewest free slots, then node order: what select/cons_tres does
    with a job of one slot, but for its preference of short runs of consecutive nodes."""

    def __init__(self, world: World) -> None:
        kinds, kind, free = world.fleet.kinds, world.states.kind, world.states.free
        super().__init__(world, lambda state: (kinds[kind[state]].weight, free[state]))
