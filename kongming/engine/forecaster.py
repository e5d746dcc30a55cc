"""Predict one application on one node as it is now."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from kongming.arrays import Floats
from kongming.engine import environment, standing_in
from kongming.engine import forecast_parts as answering
from kongming.engine.catalog import Pressure, untrained
from kongming.engine.columns import fitted
from kongming.engine.environment import Phase
from kongming.engine.forecast_parts import Met
from kongming.engine.memory import Memory
from kongming.engine.movement import Movement
from kongming.engine.nodes import NodeView
from kongming.engine.residents import Company
from kongming.engine.scoring import Served
from kongming.engine.state import FleetState
from kongming.learning.awake import together
from kongming.learning.estimate import EstimateOptions, runtime_of
from kongming.quantities import per_cent
from kongming.records.answers import OUT_OF_SERVICE, Forecast, ResidentImpact
from kongming.records.errors import (
    CannotAnswerError,
    InputError,
    StaleError,
    UnknownNameError,
    UntrainedError,
)
from kongming.records.questions import Question


@dataclass(frozen=True, eq=False, slots=True)
class Subject:
    """Subject of a question: ``logs`` (C,) is the environment that the application meets, and
    ``awake`` the share of time in which residents keep a CPU awake, NaN without any. ``model`` is
    None where none can say anything of the place. ``age`` (s) is that of the newest fingerprint,
    None without any; ``history`` says that the median of those before it stands in for it."""

    view: NodeView
    slot: int
    placement: str
    model: Served | None
    company: Company
    logs: Floats
    awake: float
    age: float | None
    stale: bool
    history: bool


@dataclass(frozen=True, eq=False, slots=True)
class _Meeting:
    """A resident whose model can say what it meets: ``now``, and ``then``, with the newcomer.
    ``place`` is where it is in the company of the slot."""

    assignment_id: str
    place: int
    model: Served
    now: Met
    then: Met


class Forecaster:
    """Answers are remembered until what they follow from changes; their age is computed again."""

    def __init__(self, fleet: FleetState) -> None:
        self._fleet = fleet
        self._memory: Memory[tuple[Any, ...], Forecast] = Memory(fleet.settings.answers)

    def predict(self, question: Question, now: float) -> Forecast:
        return self.answer(question, self.subject(question, now), now)

    def part_of_job(self, question: Question, now: float) -> Forecast:
        """Predict on one node of a job, as ``predict``. The job's runtime does not come from the
        solo runtime that this has, so that nothing is said of that on a node of another type."""
        return self._answer(question, self.subject(question, now), now)

    def subject(self, question: Question, now: float) -> Subject:
        """Return where and what the question is about. Raises as ``Engine.predict``."""
        fleet = self._fleet
        view = fleet.nodes.find(question.node)
        placement = fleet.catalog.placement(question.app, question.placement)
        model = self._model(question, placement)
        slot = self._slot(question, view, model)
        company = fleet.company(slot)
        if model is not None and not fleet.is_readable(slot, model):
            model = None
        age = self._age(slot, now)
        stale = age is not None and age > fleet.slots.ttl_s[slot]
        if stale and question.stale_policy == "refuse":
            raise StaleError(
                f"The newest fingerprint of {view.facts.name} is {age:.0f} s old; "
                f"{fleet.slots.ttl_s[slot]:.0f} s are allowed.",
                hint="Ask with a stale policy that widens or falls back to the node's history.",
            )
        history = None
        if stale and question.stale_policy == "history":
            history = fleet.slots.median(slot)
        if history is not None:
            company = fleet.residents.company(
                fleet.slots, slot, view.facts.id, fleet.catalog, fleet.columns, history
            )
        return Subject(
            view,
            slot,
            placement,
            model,
            company,
            self._met(question, company, view),
            self._awake(question, company, placement),
            age,
            stale,
            history is not None,
        )

    def answer(self, question: Question, subject: Subject, now: float) -> Forecast:
        """Raises as ``Engine.predict``."""
        forecast = self._answer(question, subject, now)
        if subject.model is None:
            return forecast
        return answering.of_another_type(self._fleet, subject.view, subject.model, forecast)

    def _answer(self, question: Question, subject: Subject, now: float) -> Forecast:
        """``answer``, whatever the type of the node is."""
        slot = subject.slot
        key = (
            question.app,
            subject.placement,
            slot,
            question.level,
            question.model,
            question.model_version,
            question.resident_id,
            question.strict,
            subject.history,
        )
        slots = self._fleet.slots
        # Late fingerprints join the history, and change nothing else.
        depends_on = (
            int(slots.version[slot]),
            self._fleet.catalog.generation,
            int(slots.history_count[slot]),
        )
        forecast = self._memory.get(key, depends_on)
        if forecast is None:
            forecast = self._forecast(question, subject)
            self._memory.put(key, depends_on, forecast)
        return self._aged(question, forecast, subject, now)

    # What the question is about.

    def _model(self, question: Question, placement: str) -> Served | None:
        catalog = self._fleet.catalog
        if catalog.served(question.app, placement) is None and not (
            question.model_version or question.model
        ):
            trained = catalog.placements(question.app)
            if trained and question.placement is not None:
                raise untrained(question.app, placement, trained)
            return None
        return catalog.requested(question.app, placement, question.model_version, question.model)

    def _slot(self, question: Question, view: NodeView, model: Served | None) -> int:
        slots = self._fleet.slots
        ready = {domain: slot for domain, slot in view.slots.items() if slots.ready[slot]}
        if question.domain is not None:
            domains = max(len(view.facts.llc_cpus), 1)
            if not 0 <= question.domain < domains:
                raise InputError(
                    "is no last-level cache domain of the node.",
                    field="domain",
                    value=question.domain,
                    allowed=f"0 to {domains - 1}",
                )
            ready = {d: slot for d, slot in ready.items() if d == question.domain}
        elif question.resident_id:
            resident = self._resident(question, view)
            ready = {d: s for d, s in ready.items() if d == resident.domain} or ready
        if not ready:
            where = "" if question.domain is None else f" in its domain {question.domain}"
            raise CannotAnswerError(
                f"Nothing was read on {view.facts.name}{where} yet: no fingerprint and no idle "
                "reference.",
                hint="Start its agent, or wait for its first fingerprint.",
            )
        if len(ready) == 1:
            return next(iter(ready.values()))
        if model is None:
            for slot in ready.values():
                self._fleet.company(slot)
            return min(ready.values(), key=lambda s: (_last(float(slots.general[s])), s))
        return min(ready.values(), key=lambda s: (_last(self._fleet.entry(model, s)), s))

    def _resident(self, question: Question, view: NodeView) -> Any:
        resident = self._fleet.residents.find(question.resident_id)
        if resident is None or not resident.active:
            raise UnknownNameError("assignment", question.resident_id, None)
        for what, theirs, ours in (
            ("app", resident.app, question.app),
            ("node", resident.node_id, view.facts.id),
        ):
            if theirs != ours:
                raise InputError(
                    f"is an assignment of {theirs}, which is not the question's {what}.",
                    field="resident_id",
                    value=question.resident_id,
                    allowed=f"an assignment of {ours}, or none for a newcomer",
                )
        return resident

    def _met(self, question: Question, company: Company, view: NodeView) -> Floats:
        if not question.resident_id:
            logs = company.met
        else:
            self._resident(question, view)
            place = company.place(question.resident_id)
            logs = company.met if place is None else company.each[place]
        return fitted(logs, self._fleet.slots.width)

    @staticmethod
    def _awake(question: Question, company: Company, placement: str) -> float:
        """The share of time in which those next to the application keep a CPU awake; NaN for a
        newcomer to a node without residents."""
        place = company.place(question.resident_id) if question.resident_id else None
        return company.awake_for(placement, place)

    def _age(self, slot: int, now: float) -> float | None:
        taken_at = float(self._fleet.slots.taken_at[slot])
        return None if math.isnan(taken_at) else max(now - taken_at, 0.0)

    # The answer.

    def _forecast(self, question: Question, subject: Subject) -> Forecast:
        model = subject.model
        if model is None:
            forecast = self._node_only(question, subject)
        else:
            answering.check_suite(self._fleet, subject.slot, subject.view, model)
            forecast = self._by_model(question, subject, model)
        warnings = list(forecast.warnings)
        unknown = self._standing_in(question, subject)
        if unknown:
            forecast = answering.uncalibrated(forecast)
        residents, unknown_to_them = self._impacts(question, subject)
        if unknown | unknown_to_them:
            warnings.append(
                f"No signature of {answering.listed(sorted(unknown | unknown_to_them))} is known: "
                "taken to press as a typical application does, and what rests on that is not "
                "calibrated."
            )
        own = (question.resident_id,)
        within = own if question.resident_id in subject.company.named(Phase.WITHIN) else ()
        added = subject.company.named(Phase.ADDED)
        return replace(
            forecast,
            warnings=tuple(warnings),
            added=tuple(
                assignment_id for assignment_id in added if assignment_id != question.resident_id
            ),
            removed=(*subject.company.named(Phase.REMOVED), *within),
            residents=residents,
        )

    def _by_model(self, question: Question, subject: Subject, model: Served) -> Forecast:
        fleet = self._fleet
        slot = subject.slot
        is_carried = fleet.is_carried(slot, model)
        widening = answering.widening_of(fleet, model)
        prediction = answering.predicted(
            model,
            Met(subject.logs, fleet.slots.idle[slot], is_carried, subject.awake),
            EstimateOptions(None, None, question.level, widening),
            strict=question.strict,
        )
        node_id, domain = subject.view.facts.id, int(fleet.slots.domain[slot])
        forecast = answering.forecast_of(prediction, node_id, domain, subject.placement, model)
        if is_carried:
            note = answering.carried_note(model, subject.view)
            forecast = replace(forecast, notes=(*forecast.notes, note))
        return answering.borrowed(fleet, slot, subject.view, forecast) if is_carried else forecast

    def _node_only(self, question: Question, subject: Subject) -> Forecast:
        slots = self._fleet.slots
        slowed = subject.logs - self._fleet.baseline(subject.slot)
        name = subject.view.facts.name
        if np.isnan(slowed).all():
            raise UntrainedError(
                f"{name} has no idle reference, no node like it has one, and its history is too "
                f"short to tell what is slow on it: nothing can be said of {question.app} there.",
                hint=answering.TAKE_A_REFERENCE,
            )
        bounded = not slots.has_reference(np.array([subject.slot]))[0]
        slowdown = answering.general(slowed, question.level)
        if bounded:
            why = (
                f"{name} has no idle reference, and no node like it: this is its general slowdown "
                f"over its fastest readings so far, so it is at least so slow. It knows nothing of "
                f"{question.app}."
            )
        else:
            why = (
                f"{self._fleet.catalog.why_untrained(question.app)}: this is the node's general "
                "slowdown, which knows nothing of it."
            )
        forecast = Forecast(
            app=question.app,
            node_id=subject.view.facts.id,
            domain=int(slots.domain[subject.slot]),
            placement=subject.placement,
            basis="node-only",
            slowdown=replace(slowdown, at_least=bounded),
            warnings=(why,),
        )
        return answering.borrowed(self._fleet, subject.slot, subject.view, forecast)

    @staticmethod
    def _standing_in(question: Question, subject: Subject) -> frozenset[str]:
        """Return the applications whose typical pressure is in what the application meets."""
        company = subject.company
        place = company.place(question.resident_id) if question.resident_id else None
        if place is None:
            return standing_in.for_newcomer(company)
        return standing_in.for_each(company)[place]

    def _arriving(self, question: Question, subject: Subject) -> Pressure:
        """Return what the newcomer presses with on residents."""
        suite = int(self._fleet.slots.suite[subject.slot])
        return self._fleet.catalog.pressure(question.app, subject.placement, suite)

    def _meetings(self, question: Question, subject: Subject) -> Iterator[_Meeting]:
        """Residents whose models can say anything of the place: what they meet there."""
        fleet, slot = self._fleet, subject.slot
        width, idle = fleet.slots.width, fleet.slots.idle[slot]
        arriving = self._arriving(question, subject)
        pressure, spread = fitted(arriving.slowed, width), fitted(arriving.spread, width)
        for i in subject.company.here:
            member = subject.company.present[i]
            model = fleet.catalog.served(member.resident.app, member.placement)
            if model is None or not fleet.is_judged(slot, model):
                continue
            logs = fitted(subject.company.each[i], width)
            noise = fitted(subject.company.each_noise[i].astype(np.float64), width)
            joined = logs + environment.added(pressure, spread, noise)
            awake = subject.company.awake_for(member.placement, i)
            is_carried = fleet.is_carried(slot, model)
            yield _Meeting(
                member.resident.assignment_id,
                i,
                model,
                Met(logs, idle, is_carried, awake),
                Met(joined, idle, is_carried, together((awake, arriving.awake))),
            )

    def _impacts(
        self, question: Question, subject: Subject
    ) -> tuple[dict[str, ResidentImpact], frozenset[str]]:
        """Return the impacts on residents by assignment, and the applications whose typical
        pressure is in what they meet: none where the question is about one of them."""
        impacts: dict[str, ResidentImpact] = {}
        unknown: frozenset[str] = frozenset()
        if question.resident_id:
            return impacts, unknown
        is_known = self._arriving(question, subject).known
        newcomer = frozenset() if is_known else frozenset((question.app,))
        others = standing_in.for_each(subject.company)
        for meeting in self._meetings(question, subject):
            model = meeting.model
            widening = answering.widening_of(self._fleet, model)
            try:
                impact = ResidentImpact(
                    model.file.app,
                    answering.slowdown(model, meeting.now, question.level, widening),
                    answering.slowdown(model, meeting.then, question.level, widening),
                )
            except InputError:
                # Too many of its surrogates were not read: nothing is said of it.
                continue
            if meeting.now.carried and self._fleet.slots.lenders[subject.slot]:
                impact = _uncalibrated(impact)
            theirs = others[meeting.place]
            if theirs:
                impact = _uncalibrated(impact)
            elif newcomer:
                then = replace(impact.slowdown_then, calibrated=False)
                impact = replace(impact, slowdown_then=then)
            impacts[meeting.assignment_id] = impact
            unknown |= theirs | newcomer
        return impacts, unknown

    def _aged_impacts(
        self,
        question: Question,
        subject: Subject,
        impacts: Mapping[str, ResidentImpact],
        movement: Movement,
        age: float,
    ) -> dict[str, ResidentImpact]:
        """Those of residents, who have met what the newcomer has for as long. A model is asked once
        for all that it can say anything of: a node may have hundreds, and this is not remembered,
        since it changes with every second."""
        by_model: dict[int, list[_Meeting]] = {}
        for meeting in self._meetings(question, subject) if impacts else ():
            if meeting.assignment_id in impacts:
                by_model.setdefault(id(meeting.model), []).append(meeting)
        reach = movement.reach(age, question.level)
        results = dict(impacts)
        for meetings in by_model.values():
            places = [met for meeting in meetings for met in (meeting.now, meeting.then)]
            moves = iter(answering.moved(meetings[0].model, places, reach))
            for meeting, now, then in zip(meetings, moves, moves, strict=True):
                impact = impacts[meeting.assignment_id]
                results[meeting.assignment_id] = replace(
                    impact,
                    slowdown_now=answering.widened(impact.slowdown_now, *now),
                    slowdown_then=answering.widened(impact.slowdown_then, *then),
                )
        return results

    def _aged(
        self,
        question: Question,
        forecast: Forecast,
        subject: Subject,
        now: float,
    ) -> Forecast:
        slots, age = self._fleet.slots, subject.age
        warnings = forecast.warnings
        state, reason = self._fleet.nodes.state(subject.view, now)
        if state in OUT_OF_SERVICE:
            warnings = (*warnings, f"The node is {state}: {reason}")
        if age is None:
            notes = (*forecast.notes, "No live fingerprint: predicted from the idle reference.")
            return replace(forecast, warnings=warnings, notes=notes)
        taken_at = float(slots.taken_at[subject.slot])
        if not subject.stale:
            return replace(
                forecast, fingerprint_age_s=age, fingerprint_taken_at=taken_at, warnings=warnings
            )
        ttl = slots.ttl_s[subject.slot]
        old = f"The fingerprint is {age:.0f} s old, beyond its {ttl:.0f} s"
        model = subject.model
        if subject.history:
            slowdown = replace(forecast.slowdown, calibrated=False)
            residents = {key: _uncalibrated(impact) for key, impact in forecast.residents.items()}
            how = "the median of the node's history was used, and the interval is not calibrated."
        else:
            movement = slots.movement(subject.slot)
            is_carried = model is not None and self._fleet.is_carried(subject.slot, model)
            met = Met(subject.logs, slots.idle[subject.slot], is_carried, subject.awake)
            slowdown = answering.aged(forecast.slowdown, model, met, movement, age)
            residents = self._aged_impacts(question, subject, forecast.residents, movement, age)
            reach = movement.reach(age, slowdown.level)
            how = (
                "the interval was widened by what the node's environment changes in such a time "
                f"(up to {per_cent(100.0 * math.expm1(reach), '.0f')} with probability "
                f"{slowdown.level:g}), and is not calibrated."
            )
        return replace(
            forecast,
            slowdown=slowdown,
            runtime_s=None if model is None else runtime_of(model.file, slowdown),
            residents=residents,
            fingerprint_age_s=age,
            fingerprint_taken_at=taken_at,
            stale=True,
            warnings=(*warnings, f"{old}: {how}"),
        )


def _uncalibrated(impact: ResidentImpact) -> ResidentImpact:
    return replace(
        impact,
        slowdown_now=replace(impact.slowdown_now, calibrated=False),
        slowdown_then=replace(impact.slowdown_then, calibrated=False),
    )


def _last(value: float) -> float:
    """Places of which nothing can be said come last."""
    return math.inf if math.isnan(value) else value
