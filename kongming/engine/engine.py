"""The engine: everything that the server answers about runtimes, from memory.

Pure but for its own memory: no files, sockets or store, and the time is the caller's. Not to be
called from two threads at once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from kongming.engine import node_loads
from kongming.engine.colocation import Companion
from kongming.engine.environment import ratio_of
from kongming.engine.explanation import Explainer
from kongming.engine.forecaster import Forecaster
from kongming.engine.nodes import NodeView
from kongming.engine.ranking.ranker import Ranker
from kongming.engine.scaled_jobs import ScaleModels, forecast_job
from kongming.engine.settings import Purpose, Settings
from kongming.engine.state import FleetState
from kongming.learning.intervals import Widening
from kongming.learning.model_file import ModelFile
from kongming.records.answers import (
    Colocation,
    Explanation,
    Forecast,
    NodeReport,
    PlacedApplication,
    Ranking,
)
from kongming.records.errors import CannotAnswerError, InputError
from kongming.records.fingerprint import Fingerprint, NodeFacts
from kongming.records.judgement import Verdict
from kongming.records.node_load import AppSlowdown, NodeLoad
from kongming.records.questions import ColocationQuestion, Question, RankQuestion
from kongming.records.resident import Resident
from kongming.records.run import Signature
from kongming.steps import Steps, finish

if TYPE_CHECKING:
    from kongming.scale.fit.scale_file import ScaleFile


class Engine:
    """Engine that answers from memory: what is put in is known at once; the matrix follows with
    ``refresh``. ``now`` is unix seconds throughout."""

    def __init__(self, settings: Settings | None = None) -> None:
        self._fleet = FleetState(settings or Settings())
        self._forecaster = Forecaster(self._fleet)
        self._explainer = Explainer(self._fleet, self._forecaster)
        self._companion = Companion(self._fleet)
        self._scales = ScaleModels()
        self._ranker = Ranker(self._fleet, self._scales)

    # Nodes and their readings.

    def put_node(self, facts: NodeFacts, now: float | None = None) -> None:
        """Make a node known, or its facts new; with ``now`` its agent was heard of then."""
        view = self._fleet.put_node(facts)
        if now is not None:
            self._fleet.nodes.saw(view, now, agent=True)

    def drop_node(self, node_id: str) -> None:
        """Forget a node and its readings; assignments on it stay with the one who knows of them."""
        self._fleet.drop_node(node_id)

    def heartbeat(self, node_id: str, now: float, probe_cost: float = 0.0) -> None:
        """Raises UnknownNameError for an unknown node."""
        view = self._fleet.nodes.find(node_id)
        self._fleet.nodes.saw(view, now, agent=True)
        view.last_heartbeat = max(now, view.last_heartbeat or 0.0)
        view.probe_cost = probe_cost

    def mark_suspect(self, node_id: str, reason: str) -> None:
        """Quarantine a node with implausible reports: not ranked until ``clear_suspect``."""
        self._fleet.nodes.mark(self._fleet.nodes.find(node_id), reason)

    def set_holder(self, node_id: str, holder: str) -> None:
        """Say whose credentials a node is registered with; empty for nobody's."""
        view = self._fleet.nodes.get(node_id)
        if view is not None:
            view.holder = holder

    def clear_suspect(self, node_id: str) -> None:
        self._fleet.nodes.mark(self._fleet.nodes.find(node_id), "")

    def put_reference(
        self,
        node_id: str,
        domain: int,
        times: Fingerprint | Mapping[str, float],
        suite_version: str | None = None,
        *,
        by: str = "",
    ) -> None:
        """The idle node, as a fingerprint or as seconds per operation by surrogate.

        ``suite_version`` None takes the times to be of whatever suite the node reports; ``by``
        are the credentials of the agent that reported it (``columns.MOST_OF_ONE``).

        Raises:
            UnknownNameError: an unknown node.
            InputError: a domain that the node does not have.
        """
        self._fleet.put_reference(node_id, domain, times, suite_version, by)

    def put_fingerprint(
        self,
        node_id: str,
        domain: int,
        fingerprint: Fingerprint,
        purpose: Purpose = Purpose.LIVE,
        now: float = math.inf,
        *,
        by: str = "",
    ) -> bool:
        """Put a fingerprint; return whether it is the newest of its domain; a late one only joins
        the history. One that was taken as a reference is the domain's reference from then on.

        Raises:
            InputError: the node has no such domain.
        """
        return self._fleet.put_fingerprint(node_id, domain, fingerprint, purpose, now, by)

    # Models, signatures and assignments.

    def put_model(self, file: ModelFile, version: int, in_service: bool = True) -> None:
        """A version of a model; into service at once, or only kept to be asked for."""
        self._fleet.put_model(file, version, in_service)

    def promote(self, app: str, placement: str, version: int) -> None:
        """Put a kept version into service. Raises UntrainedError or UnknownNameError."""
        self._fleet.promote(app, placement, version)

    def drop_model(self, app: str, placement: str, version: int = 0) -> None:
        """Forget a version, or all for 0. Dropping what is not there is harmless."""
        self._fleet.drop_model(app, placement, version)

    def put_signatures(self, signatures: Iterable[Signature]) -> None:
        """Signatures of any applications, in addition to those that are known."""
        self._fleet.put_signatures(signatures)

    def drop_signatures(self, app: str, placement: str) -> None:
        self._fleet.drop_signatures(app, placement)

    def put_widening(self, app: str, placement: str, widening: Widening) -> None:
        """Put what this application's intervals have to be widened by
        (``learning.calibration``)."""
        self._fleet.catalog.put_widening(app, placement, widening)

    def put_applications(self, names: Iterable[str]) -> None:
        """Names of applications that were registered, profiled or trained: those without a model
        are distinguished from unknown ones."""
        self._fleet.catalog.put_applications(names)

    def knows_application(self, name: str) -> bool:
        """Return whether it was named so, or has a model in service."""
        return self._fleet.catalog.knows_application(name)

    def put_scale_model(self, name: str, file: ScaleFile) -> None:
        """The newest scale model of a name, which takes the place of the one before."""
        self._scales.put(name, file)

    def drop_scale_model(self, name: str) -> None:
        self._scales.drop(name)

    def scale_models(self) -> tuple[str, ...]:
        """The names of those that are known."""
        return self._scales.names()

    def put_assignment(self, resident: Resident) -> None:
        """An assignment in whatever state; call it again on each change."""
        self._fleet.put_assignment(resident)

    # Answers.

    def refresh(self, now: float, budget_s: float = 0.02) -> float:
        """Work for about ``budget_s`` on what lags; returns by how many seconds the matrix may
        lag behind what was put in, 0 where it does not."""
        return self._fleet.refresh(now, budget_s)

    @property
    def lagging(self) -> bool:
        """Return whether ``refresh`` has work left: what arrived this very moment lags by 0
        s."""
        return self._fleet.lagging

    def staleness_s(self, now: float) -> float:
        return self._fleet.staleness_s(now)

    def predict(self, question: Question, now: float) -> Forecast:
        """The runtime of an application on a node as it is now.

        Raises:
            UnknownNameError: no such node, version, model or placement.
            InputError: a domain that the node does not have, or too few readings.
            StaleError: the fingerprint is too old, and the question says to refuse it.
            UntrainedError: no model at this placement, or for an unknown application no
                reference either.
            IncompatibleError: the fingerprint is of another suite version than the model.
            ExtrapolationError: under ``strict``, outside the training environments.
            CannotAnswerError: nothing was read on the node yet, or, of a job on several machines,
                it is beyond what the scale model can say.
        """
        answer = self.predict_in_steps(question, now)
        return answer if isinstance(answer, Forecast) else finish(answer)

    def predict_in_steps(self, question: Question, now: float) -> Forecast | Steps[Forecast]:
        """``predict``; of a job, which may have hundreds of nodes, with pauses in which the engine
        may answer and take other things."""
        if question.scaling is None:
            return self._forecast(self._forecaster.predict, question, now)
        return forecast_job(
            question,
            self._scales.find(question.app, question.scaling),
            partial(self._forecast, self._forecaster.part_of_job, now=now),
            self._named,
            self._fleet.catalog.profiles(question.app, question.placement),
        )

    @staticmethod
    def _forecast(
        forecast_of: Callable[[Question, float], Forecast], question: Question, now: float
    ) -> Forecast:
        try:
            return forecast_of(question, now)
        except ArithmeticError as error:
            # Other questions of a batch have their answers all the same.
            raise CannotAnswerError(
                f"The readings of {question.node} are beyond all that can be worked with."
            ) from error

    def predict_colocation(
        self, question: ColocationQuestion, live_domain: int | None = None
    ) -> Colocation:
        """The runtime with named neighbours, and what each of these meets: on the idle node, or
        with ``live_domain`` on that cache domain of the node as its newest fingerprint has it.

        Raises:
            UntrainedError: the application has no model, or a neighbour no signature.
            and what ``predict`` raises.
        """
        return self._companion.colocation(question, live_domain)

    def rank(self, request: RankQuestion, now: float) -> Ranking:
        """Nodes in the order in which an application should be placed.

        Raises:
            UnknownNameError: a candidate that is not known.
            UntrainedError: the application is trained at other placements than the one named.
        """
        return finish(self.rank_in_steps(request, now))

    def rank_in_steps(self, request: RankQuestion, now: float) -> Steps[Ranking]:
        """``rank``, with pauses in which the engine may answer and take other things: what one
        step takes does not grow with the number of nodes that are asked for."""
        return self._ranker.rank(request, now)

    def explain(self, question: Question, now: float) -> Explanation:
        """Return why a prediction is what it is. Raises as ``predict``."""
        if question.scaling is not None:
            raise InputError(
                "cannot be given: a job on several machines is explained by its parts.",
                field="question.scaling",
                hint="Ask for one node, the slowest.",
            )
        return self._explainer.explain(question, now)

    # What is known of nodes.

    def node_id(self, id_or_name: str) -> str:
        """Raises UnknownNameError, or InputError for a name that several nodes have."""
        return self._fleet.nodes.find(id_or_name).facts.id

    def node(self, id_or_name: str, now: float) -> NodeReport:
        """Raises as ``node_id``."""
        return self._status(self._fleet.nodes.find(id_or_name), now)

    def nodes(self, now: float) -> list[NodeReport]:
        """All nodes, by name."""
        views = sorted(self._fleet.nodes, key=lambda view: (view.facts.name, view.facts.id))
        return [self._status(view, now) for view in views]

    def reference(self, node_id: str, domain: int = 0) -> Mapping[str, float] | None:
        """Seconds per operation on the idle node; None without a reference of its own."""
        return self._fleet.reference(node_id, domain)

    def ttl_s(self, node_id: str, domain: int = 0) -> float:
        """Return how long a fingerprint of this domain is used without a warning."""
        slot = self._fleet.nodes.find(node_id).slots.get(domain)
        settings = self._fleet.settings
        return settings.ttl_s if slot is None else float(self._fleet.slots.ttl_s[slot])

    @property
    def least_ttl_s(self) -> float:
        """The shortest time to live that a fingerprint may have, learned or not."""
        settings = self._fleet.settings
        return min(settings.least_ttl_s, settings.ttl_s)

    def node_loads(
        self, now: float, window_s: float = 0.0, most: int | None = None
    ) -> Steps[list[NodeLoad]]:
        """Return how loaded the first ``most`` nodes by name are (``node_loads``), in steps."""
        return node_loads.node_loads(self._fleet, now, window_s, most)

    def app_slowdowns(self, now: float, most: int) -> Steps[list[AppSlowdown]]:
        """Return what ``most`` applications are predicted to meet in the fleet as it is now, in
        steps."""
        return node_loads.app_slowdowns(self._fleet, now, most)

    def profile_verdicts(self, most: int) -> list[tuple[str, str, Verdict | None]]:
        """The verdict on the profile of each model in service by application and placement, of the
        first ``most`` by name; None where the profile was not judged."""
        served = sorted(self._fleet.catalog.all_served(), key=lambda model: model.key)[:most]
        return [
            (*model.key, None if model.file.profile is None else model.file.profile.verdict)
            for model in served
        ]

    @property
    def node_count(self) -> int:
        return len(self._fleet.nodes)

    @property
    def models_in_service(self) -> int:
        """Applications that have a model in service, once for each placement."""
        return len(list(self._fleet.catalog.all_served()))

    def _named(self, node: str) -> tuple[str, str]:
        facts = self._fleet.nodes.find(node).facts
        return facts.id, facts.name

    def _status(self, view: NodeView, now: float) -> NodeReport:
        fleet, slots = self._fleet, self._fleet.slots
        state, reason = fleet.nodes.state(view, now)
        ready = [slot for slot in view.slots.values() if slots.ready[slot]]
        for slot in ready:
            fleet.company(slot)
        taken = [float(slots.taken_at[s]) for s in ready if not math.isnan(slots.taken_at[s])]
        known = [slot for slot in ready if not math.isnan(slots.general[slot])]
        if state == "ready" and not any(slots.lenders[slot] == 0 for slot in known):
            state = "unreferenced"
            reason = "It was never idle yet."
        general, slowdown = None, {}
        if known:
            worst = max(known, key=lambda slot: slots.general[slot])
            general = ratio_of(slots.general[worst])
            slowdown = _slowdowns(fleet, worst, view.by)
        assignments = sorted(
            fleet.residents.active_on(view.facts.id),
            key=lambda resident: (resident.since, resident.assignment_id),
        )
        return NodeReport(
            facts=view.facts,
            state=state,
            reason=reason,
            last_heartbeat_at=view.last_heartbeat,
            last_fingerprint_at=max(taken, default=None),
            general_slowdown=general,
            slowdown=slowdown,
            assignments=tuple(
                PlacedApplication(
                    resident.assignment_id, resident.app, resident.state, resident.since
                )
                for resident in assignments
            ),
            probe_cost=view.probe_cost,
        )


def _slowdowns(fleet: FleetState, slot: int, by: str) -> dict[str, float]:
    slowed = fleet.slots.slowed[slot]
    places = np.flatnonzero(~np.isnan(slowed)).tolist()
    return {fleet.columns.name(j, by): ratio_of(slowed[j]) for j in places}
