"""Rank all nodes for the placement of an application, from memory.

First every place is scored from the matrix and the table of harm, at once; then the few that are
to be returned are worked out in full, with what really runs there.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from kongming.arrays import Floats
from kongming.engine import forecast_parts as answering
from kongming.engine import scoring
from kongming.engine.catalog import Pressure, untrained
from kongming.engine.columns import fitted, fitted_rows
from kongming.engine.environment import ratio_of
from kongming.engine.forecast_parts import Met
from kongming.engine.ranking import order, shortlist
from kongming.engine.ranking.node_sets import choose_sets
from kongming.engine.residents import Company
from kongming.engine.scaled_jobs import ScaleModels, ranked_set
from kongming.engine.score_matrix import carried
from kongming.engine.scoring import Served
from kongming.engine.slots import ANY_SUITE
from kongming.engine.state import FleetState
from kongming.records.answers import RankedNode, RankedSet, Ranking
from kongming.records.errors import UntrainedError
from kongming.records.prediction import Interval
from kongming.records.questions import RankQuestion
from kongming.scale.decide.node_sets import Weights
from kongming.steps import Steps, finish

_EQUAL = 1e-6
"""Scores that differ by less than this are the same, but for rounding."""

_DOUBTFUL = 1.5
"""An estimate of a resident's log slowdown refuses a place only this far beyond the limit."""

_AT_ONCE = 128
"""Places that are worked out in full in one step: some 10 ms."""

_TRIES = 3
"""A ranking begins again where nodes or models went in a pause; after so many it makes none."""


@dataclass(frozen=True, eq=False, slots=True)
class _Query:
    request: RankQuestion
    model: Served | None
    pressure: Pressure
    now: float
    history: dict[int, _Reading] = field(default_factory=dict)
    residents: dict[int, tuple[float, bool]] = field(default_factory=dict)
    """By place that was worked out: the greatest log slowdown that a resident would have, and
    whether some one's is a lower bound, or that of no model."""


@dataclass(frozen=True, eq=False, slots=True)
class _Reading:
    """Environment of a place that is not its newest fingerprint but the ``median`` (C,) of its
    history: ``slowed`` (C,) over the idle reference, and the scores of the model."""

    slowed: Floats
    median: Floats
    error: float = 0.0
    outside: bool = False
    limit: float = 0.0
    at_least: bool = False
    variant: int = scoring.NEITHER


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
        query = _Query(request, model, catalog.pressure(request.app, placement, suite), now)
        n = slots.count
        nodes = slots.node[:n].copy()
        numbers = self._numbers(request)
        count = len(fleet.nodes) if numbers is None else len(numbers)
        candidates = self._candidates(numbers)
        stale = now - slots.taken_at[:n] > slots.ttl_s[:n]
        newcomer = self._newcomer(query, stale & candidates)
        harm = self._estimate(query)
        codes = self._refusals(query, candidates, stale, newcomer, harm)
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
                refused=self._refused(count, codes, nodes, candidates),
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
            most_harmed=_log_limit(request.resident_slowdown_limit),
            tolerance=tolerance,
            harm=partial(self._harm, query),
            random=random,
        )
        codes[list(selection.refused)] = order.code("resident_slowdown_limit")
        ranked = []
        for number, choice in enumerate(selection.places, 1):
            if number % _AT_ONCE == 0:
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
        self._refuse_by_estimate(query, codes, harm, selection.sound)
        return Ranking(
            nodes=tuple(ranked),
            candidates=count,
            refused=self._refused(count, codes, nodes, candidates),
            basis="node-only" if model is None else "model",
            staleness_s=fleet.staleness_s(now),
            profile=None if model is None else model.file.profile,
        )

    def _sets(
        self, query: _Query, field: _Field, random: np.random.Generator
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
            most_harmed=_log_limit(request.resident_slowdown_limit),
            exact=partial(self._harm, query),
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
                if number % _AT_ONCE == 0:
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

    def _newcomer(self, query: _Query, stale: NDArray[np.bool_]) -> Floats:
        """(slots,) log slowdown of the newcomer, NaN where nothing can be said."""
        fleet, slots = self._fleet, self._fleet.slots
        n = slots.count
        if query.model is None:
            log_slowdown = slots.general[:n].copy()
        else:
            log_slowdown = fleet.matrix.log_slowdown[query.model.row, :n].astype(np.float64)
        if query.request.stale_policy == "history":
            self._from_history(query, np.flatnonzero(stale), log_slowdown)
        return log_slowdown

    def _from_history(self, query: _Query, stale: NDArray[np.intp], log_slowdown: Floats) -> None:
        fleet, slots = self._fleet, self._fleet.slots
        places, medians = [], []
        each_met, each_awake = [], []
        for slot in stale.tolist():
            median = slots.median(slot)
            if median is not None:
                # What residents meet is worked out again for the few places that are chosen.
                company = self._company(slot, median)
                places.append(slot)
                medians.append(median)
                each_met.append(company.met)
                each_awake.append(company.awake)
        if not places:
            return
        chosen = np.array(places, dtype=np.intp)
        met, awake = np.array(each_met), np.array(each_awake)
        slowed = met - slots.idle[chosen]
        if query.model is None:
            log_slowdown[chosen] = np.nanmean(slowed, axis=1)
            for place, logs, median in zip(places, slowed, medians, strict=True):
                query.history[place] = _Reading(logs, median)
            return
        own = fleet.own_node(query.model)
        counted = carried(chosen, slots, own)
        scores = scoring.score(query.model, met, slowed, counted, awake)
        # Times of another node mean nothing to the model unless they are slowdowns, nor do those of
        # other surrogates.
        known = counted | (slots.node[chosen] == own)
        known &= np.isin(slots.suite[chosen], (query.model.suite, ANY_SUITE))
        log_slowdown[chosen] = np.where(known, scores.log_slowdown, math.nan)
        for i, place in enumerate(places):
            query.history[place] = _Reading(
                slowed[i],
                medians[i],
                float(scores.error[i]),
                bool(scores.outside[i]),
                float(scores.limit[i]),
                bool(scores.at_least[i]),
                int(scores.variant[i]),
            )

    def _company(self, slot: int, median: Floats) -> Company:
        """Return who matters to a place, by the median of its history."""
        fleet = self._fleet
        node_id = fleet.nodes.at(int(fleet.slots.node[slot])).facts.id
        return fleet.residents.company(
            fleet.slots, slot, node_id, fleet.catalog, fleet.columns, median
        )

    def _estimate(self, query: _Query) -> Floats:
        """(rows of the matrix,): what it adds to the log slowdown of a resident by its model."""
        fleet = self._fleet
        row = query.pressure.row if query.pressure.known else 0
        added = fleet.harm.of(row).astype(np.float64)
        rows = fleet.matrix.done.shape[0]
        if len(added) < rows:
            general = _mean(query.pressure.slowed)
            added = np.concatenate([added, np.full(rows - len(added), general)])
        return added

    def _harm(self, query: _Query, places: list[int]) -> Steps[list[tuple[float, float]]]:
        """Sum, in steps and for each place, what the newcomer adds to the residents' log slowdowns,
        and return the greatest log slowdown that one would have: infinite where there is a limit
        and that is a lower bound, or that of no model."""
        harm = []
        for start in range(0, len(places), _AT_ONCE):
            if start:
                yield
            harm += self._harm_at_once(query, places[start : start + _AT_ONCE])
        return harm

    def _harm_at_once(self, query: _Query, places: list[int]) -> list[tuple[float, float]]:
        fleet = self._fleet
        table = fleet.table
        for place in places:
            if place in query.history:
                # Its residents are to be those of now, in the table as in what is worked out.
                fleet.company(place)
        rows = [row for place in places for row in table.rows(place)]
        by_place = [len(table.rows(place)) for place in places]
        if not rows:
            query.residents.update(dict.fromkeys(places, (0.0, False)))
            return [(0.0, 0.0)] * len(places)
        chosen = np.array(rows, dtype=np.intp)
        general = _mean(fitted(query.pressure.slowed, fleet.slots.width))
        before = table.now[chosen]
        unknown = np.isnan(before)
        if unknown.any():
            before[unknown] = table.now[chosen[unknown]] = np.nan_to_num(
                fleet.resident_logs(chosen[unknown], None)[0]
            )
        met: Floats | None = None
        awake: Floats | None = None
        if any(place in query.history for place in places):
            met, awake, usual = self._usual(query, places)
            if usual.any():
                its = fleet.resident_logs(chosen[usual], None, met[usual], awake[usual])[0]
                before[usual] = np.nan_to_num(its)
        then, least = fleet.resident_logs(chosen, query.pressure, met, awake)
        # Where no model says anything, one is slowed as its surrogates are on average.
        untold = np.isnan(then)
        added = np.where(untold, general, np.maximum(then - before, 0.0))
        after = np.where(untold, np.fmax(general, 0.0), then)
        least = least | untold
        limited = bool(query.request.resident_slowdown_limit)
        harm = []
        start = 0
        for place, count in zip(places, by_place, strict=True):
            end = start + count
            worst, open_ = float(after[start:end].max(initial=0.0)), bool(least[start:end].any())
            query.residents[place] = worst, open_
            # A least slowdown, or an estimate of one, does not show that a limit is kept.
            harm.append((float(added[start:end].sum()), math.inf if limited and open_ else worst))
            start = end
        return harm

    def _usual(self, query: _Query, places: list[int]) -> tuple[Floats, Floats, NDArray[np.bool_]]:
        """Return what the residents of these places meet, (n, C), for which share of time others
        keep a CPU awake, (n,), and of which of them, (n,), that is by the median of the place's
        history."""
        table = self._fleet.table
        width = min(len(self._fleet.columns), self._fleet.slots.width)
        met, awake = [], []
        usual: list[bool] = []
        for place in places:
            rows = table.rows(place)
            reading = query.history.get(place)
            if reading is None:
                met.append(fitted_rows(table.met[rows, :width], width))
                awake.append(table.awake[rows])
            else:
                # Columns may have come since.
                company = self._company(place, fitted(reading.median, self._fleet.slots.width))
                here = company.here
                met.append(fitted_rows(company.each[here, :width], width))
                awake.append(company.each_awake[here])
            usual += [reading is not None] * len(rows)
        return np.concatenate(met), np.concatenate(awake), np.array(usual, dtype=np.bool_)

    # Who is refused.

    def _refusals(
        self,
        query: _Query,
        candidates: NDArray[np.bool_],
        stale: NDArray[np.bool_],
        newcomer: Floats,
        harm: Floats,
    ) -> NDArray[np.int8]:
        fleet, slots, request = self._fleet, self._fleet.slots, query.request
        n = slots.count
        nodes = np.maximum(slots.node[:n], 0)
        codes = np.zeros(n, dtype=np.int8)
        silent = query.now - fleet.nodes.seen > fleet.settings.silent_after_s
        order.refuse(codes, fleet.nodes.suspect[nodes], "suspect")
        order.refuse(codes, silent[nodes], "silent")
        order.refuse(codes, ~slots.ready[:n], "no_fingerprint")
        if request.stale_policy == "refuse":
            order.refuse(codes, stale, "stale")
        order.refuse(codes, np.isnan(newcomer), "unpredictable")
        if request.memory_bytes:
            order.refuse(codes, fleet.nodes.memory[nodes] < request.memory_bytes, "memory")
        if request.slowdown_limit:
            limit = _log_limit(request.slowdown_limit)
            beyond = (newcomer > limit) | self._open_ended(query)
            order.refuse(codes, beyond, "slowdown_limit")
        if request.resident_slowdown_limit:
            # Worked out they are infinitely slow, which the estimate does not know.
            unknown = fleet.table.unmodelled(n)
            order.refuse(codes, unknown, "resident_slowdown_limit")
        if request.scaling is not None:
            self._refuse_by_estimate(query, codes, harm)
        return codes

    def _open_ended(self, query: _Query) -> NDArray[np.bool_]:
        """(slots,): whether the newcomer would be slowed at least so much as is predicted, which is
        no word that a limit is kept."""
        n = self._fleet.slots.count
        if query.model is None:
            return np.zeros(n, dtype=np.bool_)
        at_least = self._fleet.matrix.at_least[query.model.row, :n].copy()
        for place, reading in query.history.items():
            at_least[place] = reading.at_least
        return at_least

    def _refuse_by_estimate(
        self,
        query: _Query,
        codes: NDArray[np.int8],
        harm: Floats,
        sound: Sequence[int] = (),
    ) -> None:
        """Refuse by the estimate of harm, which is of the newest fingerprints, except what is
        predicted from its history, and what was worked out and is ``sound``."""
        if not query.request.resident_slowdown_limit:
            return
        limit = _DOUBTFUL * _log_limit(query.request.resident_slowdown_limit)
        worst = self._fleet.table.greatest(len(codes), harm)
        where = worst > limit
        where[[*sound, *query.history]] = False
        order.refuse(codes, where, "resident_slowdown_limit")

    def _refused(
        self,
        count: int,
        codes: NDArray[np.int8],
        nodes: NDArray[np.int32],
        candidates: NDArray[np.bool_],
    ) -> dict[str, int]:
        refused = order.counted(codes, nodes, candidates)
        # A node of which nothing was ever read has no place that could be refused.
        heard = int(np.count_nonzero(np.bincount(nodes[candidates])))
        missing = count - heard
        if missing > 0:
            refused["no_fingerprint"] = refused.get("no_fingerprint", 0) + missing
        return refused

    # What is said of those that are chosen.

    def _tolerance(
        self, query: _Query, allowed: NDArray[np.intp], scores: Floats, newcomer: Floats
    ) -> float:
        if not len(allowed):
            return 0.0
        best = self._best(query, allowed, scores)
        interval = self._interval(query, best, float(newcomer[best]))
        share = self._fleet.settings.tie_share * query.request.newcomer_weight
        return share * answering.half(interval)

    def _best(self, query: _Query, allowed: NDArray[np.intp], scores: Floats) -> int:
        """The place with the best score; of several as good the one whose interval is narrowest,
        in whatever order they are held."""
        theirs = scores[allowed]
        equal = allowed[theirs <= theirs.min() + _EQUAL]
        if query.model is None:
            return int(equal[0])
        return int(equal[np.argmin(self._fleet.matrix.error[query.model.row, equal])])

    def _interval(self, query: _Query, slot: int, log_slowdown: float) -> Interval:
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
        return replace(interval, calibrated=False) if slots.lenders[slot] else interval

    def _ranked(
        self,
        query: _Query,
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
            is_carried = query.model is not None and fleet.is_carried(slot, query.model)
            met = Met(slots.met[slot], slots.idle[slot], is_carried, float(slots.awake[slot]))
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


def _log_limit(ratio: float) -> float:
    return math.log(ratio) if ratio > 0.0 else math.inf


def _mean(logs: Floats) -> float:
    """The mean of what is known; NaN without a warning where nothing is, as in a store that has no
    reading yet."""
    known = logs[~np.isnan(logs)]
    return float(known.mean()) if known.size else math.nan
