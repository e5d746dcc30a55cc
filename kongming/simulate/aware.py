"""Placement by what a newcomer would suffer, and would do to who is there: KONGMING, and the
oracle that knows what was measured."""

from __future__ import annotations

import math
from bisect import insort
from collections.abc import Sequence
from dataclasses import dataclass

from kongming.simulate.pairs import Beliefs
from kongming.simulate.policies import NOWHERE, Bag, Policy, World

TIE_SHARE = 0.25
"""Of half the newcomer's interval: places as close to the best as this are drawn from, as the
service does."""

_SPARE_STATES = 4000
"""States without a node that are kept in order, beyond four times those with one."""

_HAIR = 1e-9
"""What meets a limit exactly meets it."""


@dataclass(frozen=True, slots=True)
class Rules:
    """How limits are kept. ``constraint``: that the ``median`` or the interval's ``upper`` end
    keeps them; ``pack``: beside others as long as limits allow it, before an idle node."""

    constraint: str = "median"
    pack: bool = False
    tie_share: float = TIE_SHARE


class Aware(Policy):
    """The state with the least score, as the service's ranking: the newcomer's log slowdown and
    what is added to the residents'. States that would carry the newcomer or a resident beyond
    its limit are refused. Where several errors add up they are taken to be independent."""

    selective = True
    yields = True

    def __init__(
        self, world: World, beliefs: Beliefs, limits: Sequence[float], rules: Rules
    ) -> None:
        self._world = world
        self._states = world.states
        self._logs = beliefs.logs.tolist()
        self._squares = ((beliefs.upper - beliefs.logs) ** 2).tolist()
        self._limits = [math.log(limit) + _HAIR for limit in limits]
        self._rules = rules
        self._base = [-math.log(kind.speed) for kind in world.fleet.kinds]
        self._state_of = [NOWHERE] * world.fleet.nodes
        self._bags: dict[int, Bag] = {}
        self._filled = 0
        classes = range(len(limits))
        self._cost: list[dict[int, float]] = [{} for _ in classes]
        self._tolerance: list[dict[int, float]] = [{} for _ in classes]
        self._allowed: list[list[tuple[bool, float, int]]] = [[] for _ in classes]
        self._all: list[list[tuple[bool, float, int]]] = [[] for _ in classes]
        self._admitted: list[set[int]] = [set() for _ in classes]

    def moved(self, node: int, state: int) -> None:
        before = self._state_of[node]
        if before != NOWHERE:
            bag = self._bags[before]
            bag.remove(node)
            self._filled -= not len(bag)
        if self._states.free[state] <= 0:
            self._state_of[node] = NOWHERE
            return
        self._state_of[node] = state
        bag_now = self._bags.get(state)
        if bag_now is None:
            bag_now = self._bags[state] = Bag()
            if len(self._bags) > 4 * self._filled + _SPARE_STATES:
                self._forget(state)
            self._learn(state)
        self._filled += not len(bag_now)
        bag_now.add(node)

    def choose(self, job_class: int, *, forced: bool = False) -> int:
        bags = self._bags
        tied: list[Bag] = []
        flag, most = False, math.inf
        for empty, score, state in (self._all if forced else self._allowed)[job_class]:
            if tied and (empty != flag or score > most):
                break
            bag = bags[state]
            if not len(bag):
                continue
            if not tied:
                flag, most = empty, score + self._tolerance[job_class][state]
            tied.append(bag)
        if not tied:
            return NOWHERE
        if len(tied) == 1:
            return tied[0].draw(self._world.random)
        drawn = self._world.random.random() * sum(map(len, tied))
        for bag in tied:
            if drawn < len(bag):
                break
            drawn -= len(bag)
        return bag.draw(self._world.random)

    def admits(self, job_class: int, state: int) -> bool:
        return state in self._admitted[job_class]

    def cost(self, job_class: int, state: int) -> float:
        return self._cost[job_class][state]

    def _learn(self, state: int) -> None:
        for job_class in range(len(self._limits)):
            score, tolerance, good = self._judged(job_class, state)
            empty = self._rules.pack and not self._states.count[state]
            self._cost[job_class][state] = score
            self._tolerance[job_class][state] = tolerance
            insort(self._all[job_class], (empty, score, state))
            if good:
                insort(self._allowed[job_class], (empty, score, state))
                self._admitted[job_class].add(state)

    def _judged(self, job_class: int, state: int) -> tuple[float, float, bool]:
        """The score, what counts as tied with it, and whether all limits would hold."""
        logs, squares, app_of = self._logs, self._squares, self._states.class_app
        by_upper = self._rules.constraint == "upper"
        base = self._base[self._states.kind[state]]
        app = app_of[job_class]
        present = self._states.residents[state]
        others = [app_of[one] for one in present]
        newcomer = base + math.fsum(logs[app][other] for other in others)
        spread = math.sqrt(math.fsum(squares[app][other] for other in others))
        good = newcomer + (spread if by_upper else 0.0) <= self._limits[job_class]
        harm = math.fsum(logs[other][app] for other in others)
        for place, resident in enumerate(present):
            own = others[place]
            company = [*others[:place], *others[place + 1 :], app]
            after = base + math.fsum(logs[own][other] for other in company)
            if by_upper:
                after += math.sqrt(math.fsum(squares[own][other] for other in company))
            good = good and after <= self._limits[resident]
        return newcomer + harm, self._rules.tie_share * spread, good

    def _forget(self, newest: int) -> None:
        """Drop the states that no node is in: they are learned again when one is."""
        kept = {state for state, bag in self._bags.items() if len(bag) or state == newest}
        self._bags = {state: bag for state, bag in self._bags.items() if state in kept}
        for job_class in range(len(self._limits)):
            for lists in (self._all, self._allowed):
                lists[job_class] = [one for one in lists[job_class] if one[2] in kept]
            for known in (self._cost, self._tolerance):
                known[job_class] = {s: v for s, v in known[job_class].items() if s in kept}
            self._admitted[job_class] &= kept
