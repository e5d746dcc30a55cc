"""Rank all nodes for the placement of an application, from memory.

First every place is scored from the matrix and the table of harm, at once; then the few that are
to be returned are worked out in full, with what really runs there.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from kongming.arrays import Floats
from kongming.engine import awake_shares, scoring
from kongming.engine import forecast_parts as answering
from kongming.engine.catalog import untrained
from kongming.engine.environment import ratio_of
from kongming.engine.forecast_parts import Met
from kongming.engine.ranking import order, refusals, shortlist
from kongming.engine.ranking.harm import AT_ONCE, estimate, exact
from kongming.engine.ranking.history import from_history
from kongming.engine.ranking.node_sets import choose_sets
from kongming.engine.ranking.query import Query, log_limit
from kongming.engine.scaled_jobs import ScaleModels, ranked_set
from kongming.engine.state import FleetState
from kongming.records.answers import RankedNode, RankedSet, Ranking
from kongming.records.errors import UntrainedError
from kongming.records.prediction import Interval
from kongming.records.questions import RankQuestion
from kongming.scale.decide.node_sets import Weights
from kongming.steps import Steps, finish

_EQUAL = 1e-6
"""Scores that differ by less than this are the same, but for rounding."""

_TRIES = 3
"""A ranking begins again where nodes or models went in a pause; after so many it makes none."""


@dataclass(frozen=True, eq=False, slots=True)
class _Field:
    """All places (slots,): the newcomer's log slowdown, an estimate of what it adds to residents',
    whose they are, why each is refused, and whether it is stale; ``allowed`` are their numbers."""

    newcomer: Floats
    harm: Floats
    nodes: NDArray[np.int32]
    codes: NDArray[np.int8]
    stale: NDArray[np.bool_]
    allowed: NDArray[np.intp]
    tolerance: float


class Ranker:
    def __init__(self, fleet: FleetState, scales: ScaleModels) -> None:
        self._fleet = fleet
        self._scales = scales
        self._seeds = itertools.count(1)

    def rank(self, request: RankQuestion, now: float) -> Steps[Ranking]:
        """Rank nodes in steps, between which the fleet may change."""
        fleet = self._fleet
        for _ in range(_TRIES):
            steps, generation = self._rank(request, now), fleet.generation
            while fleet.generation == generation:
                try:
                    next(steps)
                except StopIteration as end:
                    return end.value  # type: ignore[no-any-return]
                yield
        return finish(self._rank(request, now))

    def _rank(self, request: RankQuestion, now: float) -> Steps[Ranking]:
        fleet, slots = self._fleet, self._fleet.slots
        catalog = fleet.catalog
        placement = catalog.placement(request.app, request.placement)
        model = catalog.served(request.app, placement)
        if model is None and request.placement is not None and catalog.placements(request.app):
            raise untrained(request.app, placement, catalog.placements(request.app))
        yield from fleet.bring_up(model)
        suite = self._suite() if model is None else model.suite
        query = Query(request, model, catalog.pressure(request.app, placement, suite), now)
        n = slots.count
        nodes = slots.node[:n].copy()
        numbers = self._numbers(request)
        count = len(fleet.nodes) if numbers is None else len(numbers)
        candidates = self._candidates(numbers)
        stale = now - slots.taken_at[:n] > slots.ttl_s[:n]
        newcomer = self._newcomer(query, stale & candidates)
        harm = estimate(fleet, query)
        codes = refusals.codes_of(fleet, query, candidates, stale, newcomer, harm)
        added = fleet.table.sums(n, harm)
        scores = order.scores(
            newcomer,
            added,
            request.newcomer_weight,
            request.resident_weight,
        )
        allowed = np.flatnonzero(candidates & (codes == 0))
        tolerance = self._tolerance(query, allowed, scores, newcomer)
        random = np.random.default_rng(next(self._seeds) if request.seed is None else request.seed)
        if request.scaling is not None:
            field = _Field(newcomer, added, nodes, codes, stale, allowed, tolerance)
            sets = yield from self._sets(query, field, random)
            return Ranking(
                nodes=sets[0].nodes if sets else (),
                candidates=count,
                refused=refusals.counted(count, codes, nodes, candidates),
                basis="node-only" if model is None else "model",
                staleness_s=fleet.staleness_s(now),
                sets=sets,
                profile=None if model is None else model.file.profile,
            )
        residents = fleet.table.counts(n)
        selection = yield from shortlist.best(
            newcomer,
            added,
            allowed,
            nodes,
            residents,
            weights=(request.newcomer_weight, request.resident_weight),
            limit=request.limit,
            most_harmed=log_limit(request.resident_slowdown_limit),
            tolerance=tolerance,
            harm=partial(exact, fleet, query),
            random=random,
        )
        codes[list(selection.refused)] = order.code("resident_slowdown_limit")
        ranked = []
        for number, choice in enumerate(selection.places, 1):
            if number % AT_ONCE == 0:
                yield
            try:
                node = self._ranked(
                    query,
                    choice.place,
                    choice.score,
                    query.residents[choice.place],
                    float(newcomer[choice.place]),
                    choice.tied,
                    bool(stale[choice.place]),
                    int(residents[choice.place]),
                )
            except ArithmeticError:
                # Numbers of one node must not keep the others from being ranked.
                codes[choice.place] = order.code("unpredictable")
            else:
                ranked.append(node)
        # Counted as refused, though not worked out: they are not in the answer in any case.
        refusals.refuse_by_estimate(fleet, query, codes, harm, selection.sound)
        return Ranking(
            nodes=tuple(ranked),
            candidates=count,
            refused=refusals.counted(count, codes, nodes, candidates),
            basis="node-only" if model is None else "model",
            staleness_s=fleet.staleness_s(now),
            profile=None if model is None else model.file.profile,
        )

    def _sets(
        self, query: Query, field: _Field, random: np.random.Generator
    ) -> Steps[tuple[RankedSet, ...]]:
        fleet, request = self._fleet, query.request
        assert request.scaling is not None
        try:
            scale = self._scales.find(request.app, request.scaling)
        except UntrainedError:
            # Nodes can be told apart all the same.
            scale = None
        choices, refused = yield from choose_sets(
            field.newcomer,
            field.harm,
            field.allowed,
            field.nodes,
            size=request.scaling.machines,
            limit=request.limit,
            weights=Weights(request.newcomer_weight, request.resident_weight, field.tolerance),
            most_harmed=log_limit(request.resident_slowdown_limit),
            exact=partial(exact, fleet, query),
            random=random,
        )
        field.codes[refused] = order.code("resident_slowdown_limit")
        residents = fleet.table.counts(len(field.nodes))
        sets = []
        for choice in choices:
            nodes = []
            for number, (place, tied, harm) in enumerate(
                zip(choice.places, choice.tied, choice.harm, strict=True)
            ):
                if number % AT_ONCE == 0:
                    yield
                newcomer = float(field.newcomer[place])
                score = request.newcomer_weight * newcomer + request.resident_weight * harm
                nodes.append(
                    self._ranked(
                        query,
                        place,
                        score,
                        query.residents[place],
                        newcomer,
                        tied,
                        bool(field.stale[place]),
                        int(residents[place]),
                    )
                )
            yield
            ranked = ranked_set(nodes, choice.score, request.scaling, scale, request.level)
            sets.append((yield from ranked))
        return tuple(sets)

    # Who is asked about.

    def _numbers(self, request: RankQuestion) -> list[int] | None:
        """The numbers of the nodes that are named, each once under any name; None for all."""
        if not request.nodes:
            return None
        return sorted({self._fleet.nodes.find(name).number for name in request.nodes})

    def _candidates(self, numbers: list[int] | None) -> NDArray[np.bool_]:
        slots = self._fleet.slots
        n = slots.count
        in_use = slots.node[:n] >= 0
        if numbers is None:
            return in_use
        wanted = np.zeros(self._fleet.nodes.count, dtype=np.bool_)
        wanted[numbers] = True
        return in_use & wanted[np.maximum(slots.node[:n], 0)]

    def _suite(self) -> int:
        """The suite that an unknown application's pressure is of: the fleet's."""
        suites = self._fleet.slots.suite[: self._fleet.slots.count]
        known = suites[suites >= 0]
        return int(np.bincount(known).argmax()) if len(known) else 0

    # What it meets, and what it does.

    def _newcomer(self, query: Query, stale: NDArray[np.bool_]) -> Floats:
        """(slots,) log slowdown of the newcomer, NaN where nothing can be said."""
        fleet, slots = self._fleet, self._fleet.slots
        n = slots.count
        if query.model is None:
            log_slowdown = slots.general[:n].copy()
        else:
            log_slowdown = fleet.matrix.log_slowdown[query.model.row, :n].astype(np.float64)
        if query.request.stale_policy == "history":
            from_history(fleet, query, np.flatnonzero(stale), log_slowdown)
        return log_slowdown

    # What is said of those that are chosen.

    def _tolerance(
        self, query: Query, allowed: NDArray[np.intp], scores: Floats, newcomer: Floats
    ) -> float:
        if not len(allowed):
            return 0.0
        best = self._best(query, allowed, scores)
        interval = self._interval(query, best, float(newcomer[best]))
        share = self._fleet.settings.tie_share * query.request.newcomer_weight
        return share * answering.half(interval)

    def _best(self, query: Query, allowed: NDArray[np.intp], scores: Floats) -> int:
        """The place with the best score; of several as good the one whose interval is narrowest,
        in whatever order they are held."""
        theirs = scores[allowed]
        equal = allowed[theirs <= theirs.min() + _EQUAL]
        if query.model is None:
            return int(equal[0])
        return int(equal[np.argmin(self._fleet.matrix.error[query.model.row, equal])])

    def _interval(self, query: Query, slot: int, log_slowdown: float) -> Interval:
        slots, matrix = self._fleet.slots, self._fleet.matrix
        history = query.history.get(slot)
        if query.model is None:
            slowed = slots.slowed[slot] if history is None else history.slowed
            if np.isnan(slowed).all():
                raise UntrainedError(f"Nothing is known of {query.request.app} there.")
            return answering.general(slowed, query.request.level)
        row = query.model.row
        variant = matrix.variant[row, slot] if history is None else history.variant
        code = int(variant) or scoring.FULL
        scorer = query.model.scorers.get(code) or query.model.scorers[scoring.FULL]
        widening = answering.widening_of(self._fleet, query.model)
        error = float(matrix.error[row, slot]) if history is None else history.error
        limit = float(matrix.limit[row, slot]) if history is None else history.limit
        edge = bool(matrix.at_least[row, slot]) if history is None else history.at_least
        interval = scorer.interval(
            log_slowdown, error, query.request.level, widening, limit=limit, at_least=edge
        )
        borrowed = slots.lenders[slot] and self._fleet.is_carried(slot, query.model)
        filled = matrix.filled[row, slot] if history is None else history.filled
        if borrowed or filled or slots.guessed[slot]:
            return replace(interval, calibrated=False)
        return interval

    def _ranked(
        self,
        query: Query,
        slot: int,
        score: float,
        worst: tuple[float, bool],
        newcomer: float,
        tied: bool,
        stale: bool,
        residents: int,
    ) -> RankedNode:
        fleet, slots = self._fleet, self._fleet.slots
        facts = fleet.nodes.at(int(slots.node[slot])).facts
        taken_at = float(slots.taken_at[slot])
        age = None if math.isnan(taken_at) else max(query.now - taken_at, 0.0)
        interval = self._interval(query, slot, newcomer)
        history = query.history.get(slot)
        if stale and age is not None and history is None:
            is_carried, awake = False, math.nan
            if query.model is not None:
                is_carried = fleet.is_carried(slot, query.model)
                awake = slots.awake.item(slot, awake_shares.counted(query.model.file.placement))
            met = Met(slots.met[slot], slots.idle[slot], is_carried, awake)
            interval = answering.aged(interval, query.model, met, slots.movement(slot), age)
        elif stale:
            interval = replace(interval, calibrated=False)
        model = query.model
        if history is not None:
            outside = history.outside
        else:
            outside = model is not None and bool(fleet.matrix.outside[model.row, slot])
        return RankedNode(
            node_id=facts.id,
            name=facts.name,
            domain=int(slots.domain[slot]),
            score=score,
            slowdown=interval,
            worst_resident_slowdown=ratio_of(worst[0]),
            worst_resident_at_least=worst[1],
            fingerprint_age_s=age,
            stale=stale,
            extrapolating=outside,
            tied_with_first=tied,
            residents=residents,
        )
