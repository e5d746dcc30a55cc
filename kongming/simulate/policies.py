"""Placement policies. They choose among node states and never scan single nodes, so that a decision
costs the same for ten nodes and ten thousand."""

from __future__ import annotations

import abc
import heapq
from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from kongming.simulate.fleet import Fleet
from kongming.simulate.states import States

NOWHERE = -1
"""In place of a node, a state, a group or a job: there is none."""


@dataclass(frozen=True, eq=False, slots=True)
class PolicyContext:
    """Inputs of a policy: the fleet, its node states, and a random generator of its own."""

    fleet: Fleet
    states: States
    random: Random


class Policy(abc.ABC):
    """Base class: keeps an index of the nodes, which the replay updates on every state change.

    ``selective``: the policy may leave a job waiting although a slot is free. Jobs then wait in one
    queue per class, otherwise in a single queue. ``yields``: the policy ignores limits for a job
    that has waited too long.
    """

    selective = False
    yields = False

    @abc.abstractmethod
    def node_changed(self, node: int, state: int) -> None:
        """Record that the node is in ``state`` now. Called for each node before the first job."""

    @abc.abstractmethod
    def choose(self, job_class: int, *, forced: bool = False) -> int:
        """Choose a node with a free slot, or NOWHERE. ``forced``: ignore limits."""

    def admits(self, job_class: int, state: int) -> bool:
        """Return whether a job of this class may start on a node in this state, which has a free
        slot."""
        return True

    def predicted_cost(self, job_class: int, state: int) -> float:
        """Cost of starting such a job on a node in this state: orders waiting jobs under best fit,
        lowest first."""
        return 0.0


class NodePool:
    """Set of nodes with adding, removing and uniform random draws in constant time."""

    def __init__(self) -> None:
        self._nodes: list[int] = []
        self._index: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self._nodes)

    def add(self, node: int) -> None:
        self._index[node] = len(self._nodes)
        self._nodes.append(node)

    def remove(self, node: int) -> None:
        index = self._index.pop(node)
        last = self._nodes.pop()
        if last != node:
            self._nodes[index] = last
            self._index[last] = index

    def draw(self, random: Random) -> int:
        return self._nodes[int(random.random() * len(self._nodes))]


class _ByGroup(Policy):
    """Nodes in pools by the group number of their state; a draw from the lowest group wins."""

    def __init__(self, context: PolicyContext) -> None:
        self._context = context
        self._pools: dict[int, NodePool] = {}
        self._node_group = [NOWHERE] * context.fleet.nodes
        self._groups: list[int] = []

    def group(self, state: int) -> int:
        """Group number of a state with a free slot; NOWHERE excludes its nodes."""
        raise NotImplementedError

    def node_changed(self, node: int, state: int) -> None:
        groups = self._groups
        while len(groups) <= state:
            free = self._context.states.free[len(groups)]
            groups.append(self.group(len(groups)) if free > 0 else NOWHERE)
        group, previous = groups[state], self._node_group[node]
        if group == previous:
            return
        if previous != NOWHERE:
            self._pools[previous].remove(node)
        if group != NOWHERE:
            pool = self._pools.get(group)
            if pool is None:
                pool = self._pools[group] = NodePool()
            pool.add(node)
        self._node_group[node] = group

    def choose(self, job_class: int, *, forced: bool = False) -> int:
        # There are few groups: at most one per number of residents.
        best = min((group for group, pool in self._pools.items() if len(pool)), default=NOWHERE)
        return NOWHERE if best == NOWHERE else self._pools[best].draw(self._context.random)


class RandomNode(_ByGroup):
    """Any node with a free slot, uniformly at random."""

    def group(self, state: int) -> int:
        return 0


class LeastLoaded(_ByGroup):
    """A random node among those with the smallest share of slots in use (Slurm's CR_LLN)."""

    def group(self, state: int) -> int:
        states = self._context.states
        slots = self._context.fleet.kinds[states.kind[state]].slots
        return states.count[state] * 1_000_000 // slots


class Exclusive(_ByGroup):
    """Idle nodes only: no job has a neighbour (Slurm's select/linear)."""

    selective = True

    def group(self, state: int) -> int:
        return NOWHERE if self._context.states.count[state] else 0

    def admits(self, job_class: int, state: int) -> bool:
        return self._context.states.count[state] == 0


class _InOrder(Policy):
    """One heap of nodes per rank; stale entries are dropped when they reach the top.

    A node may be in several heaps, but counts only in that of its current rank;
    ``_in_heap[rank][node]`` is 1 while the node is in that heap, so no heap holds a node twice.
    """

    def __init__(self, context: PolicyContext, rank: Callable[[int], tuple[float, int]]) -> None:
        self._free = context.states.free
        self._rank = rank
        self._heaps: dict[tuple[float, int], list[int]] = {}
        self._in_heap: dict[tuple[float, int], bytearray] = {}
        self._node_rank: list[tuple[float, int] | None] = [None] * context.fleet.nodes
        self._ranks: list[tuple[float, int] | None] = []
        self._order: list[tuple[float, int]] = []

    def node_changed(self, node: int, state: int) -> None:
        ranks = self._ranks
        while len(ranks) <= state:
            ranks.append(self._rank(len(ranks)) if self._free[len(ranks)] > 0 else None)
        rank = ranks[state]
        self._node_rank[node] = rank
        if rank is None:
            return
        in_heap = self._in_heap.get(rank)
        if in_heap is None:
            in_heap = self._in_heap[rank] = bytearray(len(self._node_rank))
            self._heaps[rank] = []
            self._order = sorted(self._heaps)
        if not in_heap[node]:
            in_heap[node] = 1
            heapq.heappush(self._heaps[rank], node)

    def choose(self, job_class: int, *, forced: bool = False) -> int:
        node_rank = self._node_rank
        for rank in self._order:
            heap = self._heaps[rank]
            while heap:
                node = heap[0]
                if node_rank[node] == rank:
                    return node
                heapq.heappop(heap)
                self._in_heap[rank][node] = 0
        return NOWHERE


class FirstFit(_InOrder):
    """The lowest weight, then the first node in order that has a free slot."""

    def __init__(self, context: PolicyContext) -> None:
        kinds, kind = context.fleet.kinds, context.states.kind
        super().__init__(context, lambda state: (kinds[kind[state]].weight, 0))


class SlurmBestFit(_InOrder):
    """The lowest weight, then the fewest free slots, then node order: select/cons_tres for a job of
    one slot, without its preference for short runs of consecutive nodes."""

    def __init__(self, context: PolicyContext) -> None:
        kinds, kind, free = context.fleet.kinds, context.states.kind, context.states.free
        super().__init__(context, lambda state: (kinds[kind[state]].weight, free[state]))
