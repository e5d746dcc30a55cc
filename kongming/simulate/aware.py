"""Interference-aware placement: minimise the predicted slowdown of the new job and the slowdown it
causes to the residents. Used by KONGMING's policies and by the oracle, which knows the measured
slowdowns."""

from __future__ import annotations

import math
from bisect import insort
from collections.abc import Sequence
from dataclasses import dataclass

from kongming.simulate.pairs import Beliefs, together
from kongming.simulate.policies import NOWHERE, NodePool, Policy, PolicyContext

TIE_SHARE = 0.25
"""Share of half the new job's interval: states whose score is this close to the best are ties, and
a node is drawn from all of them, as in the service."""

_SPARE_STATES = 4000
"""Unoccupied states that are kept in the ranking, beyond four times the occupied ones."""

_LIMIT_TOLERANCE = 1e-9
"""Absolute tolerance (in logs) of limit comparisons: a slowdown equal to its limit keeps it."""


@dataclass(frozen=True, slots=True)
class Rules:
    """Rules by which limits are checked. ``constraint``: whether the ``median`` or the ``upper``
    end of the interval must keep them; ``pack``: prefer occupied nodes to idle ones as long as
    limits hold."""

    constraint: str = "median"
    pack: bool = False
    tie_share: float = TIE_SHARE


class Aware(Policy):
    """Choose the state with the lowest score, as the service's ranking does: the new job's log
    slowdown plus what is added to the residents' log slowdowns. States that would push the new job
    or a resident beyond its limit are rejected, and so are those where a prediction is only a lower
    bound, as in the service. Errors that add up are taken to be independent.

    Invariants, between two calls:

    - ``_node_state[node]`` is the node's state, or NOWHERE while it has no free slot; the node is
      in ``_pools[_node_state[node]]`` and in no other pool.
    - ``_occupied`` is the number of pools that are not empty.
    - A state has a pool exactly if it has been scored: per application it then has an entry in
      ``_predicted_cost``, ``_tie_tolerance``, ``_least_limit`` and ``_ranked``, and one in
      ``_allowed`` if a job with the application's highest limit would be admitted. Entries outlive
      the last node in the state, so ``choose`` skips empty pools.
    - ``_least_limit`` is the log of the lowest limit with which a new job is admitted; NaN, which
      no limit reaches, if a resident would be pushed beyond its own.
    - ``_ranked`` and ``_allowed`` are sorted by (is_idle, score, state); ``is_idle`` is False
      everywhere unless ``pack`` is set.
    """

    selective = True
    yields = True

    def __init__(
        self, context: PolicyContext, beliefs: Beliefs, limits: Sequence[float], rules: Rules
    ) -> None:
        self._context = context
        self._states = context.states
        self._logs = beliefs.logs.tolist()
        self._squares = ((beliefs.upper - beliefs.logs) ** 2).tolist()
        self._bounded = beliefs.bounded()
        self._log_limits = [math.log(limit) + _LIMIT_TOLERANCE for limit in limits]
        self._rules = rules
        self._base = [-math.log(kind.speed) for kind in context.fleet.kinds]
        self._node_state = [NOWHERE] * context.fleet.nodes
        self._pools: dict[int, NodePool] = {}
        self._occupied = 0
        self._highest_limit = [-math.inf] * len(self._logs)
        for app, log_limit in zip(self._states.class_app, self._log_limits, strict=True):
            self._highest_limit[app] = max(self._highest_limit[app], log_limit)
        apps = range(len(self._logs))
        self._predicted_cost: list[dict[int, float]] = [{} for _ in apps]
        self._tie_tolerance: list[dict[int, float]] = [{} for _ in apps]
        self._least_limit: list[dict[int, float]] = [{} for _ in apps]
        self._allowed: list[list[tuple[bool, float, int]]] = [[] for _ in apps]
        self._ranked: list[list[tuple[bool, float, int]]] = [[] for _ in apps]

    def node_changed(self, node: int, state: int) -> None:
        previous = self._node_state[node]
        if previous != NOWHERE:
            pool = self._pools[previous]
            pool.remove(node)
            self._occupied -= not len(pool)
        if self._states.free[state] <= 0:
            self._node_state[node] = NOWHERE
            return
        self._node_state[node] = state
        new_pool = self._pools.get(state)
        if new_pool is None:
            new_pool = self._pools[state] = NodePool()
            if len(self._pools) > 4 * self._occupied + _SPARE_STATES:
                self._evict_unoccupied(state)
            self._rank(state)
        self._occupied += not len(new_pool)
        new_pool.add(node)

    def choose(self, job_class: int, *, forced: bool = False) -> int:
        pools, app = self._pools, self._states.class_app[job_class]
        limit, least_limit = self._log_limits[job_class], self._least_limit[app]
        tied: list[NodePool] = []
        best_is_idle, highest_score = False, math.inf
        for is_idle, score, state in (self._ranked if forced else self._allowed)[app]:
            if tied and (is_idle != best_is_idle or score > highest_score):
                break
            pool = pools[state]
            if not len(pool) or not (forced or least_limit[state] <= limit):
                continue
            if not tied:
                best_is_idle = is_idle
                highest_score = score + self._tie_tolerance[app][state]
            tied.append(pool)
        if not tied:
            return NOWHERE
        if len(tied) == 1:
            return tied[0].draw(self._context.random)
        # Each node of the tied pools is equally likely.
        drawn = self._context.random.random() * sum(map(len, tied))
        for pool in tied:
            if drawn < len(pool):
                break
            drawn -= len(pool)
        return pool.draw(self._context.random)

    def admits(self, job_class: int, state: int) -> bool:
        least_limit = self._least_limit[self._states.class_app[job_class]]
        return least_limit[state] <= self._log_limits[job_class]

    def predicted_cost(self, job_class: int, state: int) -> float:
        return self._predicted_cost[self._states.class_app[job_class]][state]

    def _rank(self, state: int) -> None:
        """Score a state for every application and insert it into the rankings."""
        is_idle = self._rules.pack and not self._states.count[state]
        for app in range(len(self._logs)):
            score, tolerance, least_limit = self._score(app, state)
            self._predicted_cost[app][state] = score
            self._tie_tolerance[app][state] = tolerance
            self._least_limit[app][state] = least_limit
            insort(self._ranked[app], (is_idle, score, state))
            if least_limit <= self._highest_limit[app]:
                insort(self._allowed[app], (is_idle, score, state))

    def _score(self, app: int, state: int) -> tuple[float, float, float]:
        """Return the score, the tolerance within which others tie with it, and the least limit."""
        logs, squares, app_of = self._logs, self._squares, self._states.class_app
        by_upper = self._rules.constraint == "upper"
        base = self._base[self._states.kind[state]]
        residents = self._states.residents[state]
        resident_apps = [app_of[resident] for resident in residents]
        own_slowdown = base + together(logs[app][other] for other in resident_apps)
        spread = math.sqrt(math.fsum(squares[app][other] for other in resident_apps))
        least_limit = own_slowdown + (spread if by_upper else 0.0)
        if not self._bounded[app].isdisjoint(resident_apps):
            least_limit = math.inf
        harm = math.fsum(max(logs[other][app], 0.0) for other in resident_apps)
        for i, resident in enumerate(residents):
            resident_app = resident_apps[i]
            neighbours = [*resident_apps[:i], *resident_apps[i + 1 :], app]
            slowdown = base + together(logs[resident_app][other] for other in neighbours)
            if by_upper:
                slowdown += math.sqrt(math.fsum(squares[resident_app][n] for n in neighbours))
            if not self._bounded[resident_app].isdisjoint(neighbours):
                slowdown = math.inf
            if slowdown > self._log_limits[resident]:
                least_limit = math.nan
        return own_slowdown + harm, self._rules.tie_share * spread, least_limit

    def _evict_unoccupied(self, new_state: int) -> None:
        """Drop the states without a node, except ``new_state``, whose first node is about to be
        added. They are scored again when a node enters them."""
        retained = {state for state, pool in self._pools.items() if len(pool) or state == new_state}
        self._pools = {state: pool for state, pool in self._pools.items() if state in retained}
        for app in range(len(self._logs)):
            for ranking in (self._ranked, self._allowed):
                ranking[app] = [entry for entry in ranking[app] if entry[2] in retained]
            for values in (self._predicted_cost, self._tie_tolerance, self._least_limit):
                values[app] = {s: v for s, v in values[app].items() if s in retained}
