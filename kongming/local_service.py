"""A local store as an ``Oracle``: the questions of a server, answered without one.

A store knows no residents and no agents: nodes are as their newest stored fingerprint says, and
what it says grows old. The server corrects for placements as well; ask it where there is one.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from kongming import local_records
from kongming.colocation import Times
from kongming.errors import (
    InputError,
    KongmingError,
    StaleError,
    UnknownNameError,
    UntrainedError,
)
from kongming.fingerprint import NodeFacts
from kongming.known_nodes import (
    KnownDomain,
    general_slowdown,
    geometric_mean,
    known_domains,
    resolve,
)
from kongming.models.persist import ModelFile, read
from kongming.models.readings import check_suite, idle_times
from kongming.predict import predict_environment
from kongming.rpc.answers import (
    ApplicationReport,
    Explanation,
    Forecast,
    Imported,
    ModelReport,
    NodeReport,
    RankedNode,
    RankedSet,
    Ranking,
)
from kongming.rpc.questions import Question, RankQuestion
from kongming.run import Run, Signature
from kongming.staleness import log_level, movement_of, widened
from kongming.store import Store

if TYPE_CHECKING:
    from kongming.scale.model import ScaleFile

TTL_S = 300.0
"""Age up to which a fingerprint counts as the node's present."""

TIE_SHARE = 0.25
"""Of the first one's interval (its half, in logs), what a score may differ by and be tied."""

DEFAULT_PLACEMENT = "cross-core"


class LocalService:
    """``LocalService(store).rank(RankQuestion("sort"))``; ``now`` gives unix seconds, and
    ``scale_files`` are scale models beside the store's, by the name that questions have for them.
    """

    def __init__(
        self,
        store: Store,
        now: Callable[[], float] = time.time,
        scale_files: Mapping[str, ScaleFile] = MappingProxyType({}),
    ) -> None:
        self._store = store
        self._now = now
        self._scale_files = scale_files
        self._models: dict[tuple[str, str, int], ModelFile] = {}

    def predict(self, questions: Sequence[Question]) -> tuple[Forecast | KongmingError, ...]:
        nodes = self._store.nodes()
        answers: list[Forecast | KongmingError] = []
        for question in questions:
            try:
                answers.append(
                    self._forecast(question, resolve(nodes, question.node))
                    if question.scaling is None
                    else self._job(question, nodes)
                )
            except KongmingError as error:
                answers.append(error)
        return tuple(answers)

    def rank(self, question: RankQuestion) -> Ranking:
        began = time.monotonic()
        nodes = self._store.nodes()
        candidates = (
            list({node.id: node for node in (resolve(nodes, n) for n in question.nodes)}.values())
            if question.nodes
            else nodes
        )
        refused: dict[str, int] = {}
        kept: list[RankedNode] = []
        for node in candidates:
            place, why = self._ranked(question, node)
            if place is not None:
                kept.append(place)
            else:
                refused[why] = refused.get(why, 0) + 1
        trained = self._version(question.app, question.placement, None, 0) is not None
        sets = () if question.scaling is None else self._sets(question, kept)
        if question.scaling is None:
            chosen = _ordered(kept, question.seed)[: question.limit]
        else:
            chosen = sets[0].nodes if sets else ()
        return Ranking(
            nodes=chosen,
            candidates=len(candidates),
            refused=dict(sorted(refused.items())),
            basis="model" if trained else "node-only",
            elapsed_s=time.monotonic() - began,
            sets=sets,
        )

    def nodes(self) -> tuple[NodeReport, ...]:
        reports = []
        for node in self._store.nodes():
            known = known_domains(self._store, node)
            slowdowns = [domain.slowdown(domain.newest.times()) for domain in known]
            worst = max(slowdowns, key=lambda seen: geometric_mean(seen) or 0.0, default={})
            reports.append(
                NodeReport(
                    facts=node,
                    state="stored",
                    reason="" if known else "It has no fingerprint.",
                    last_fingerprint_at=max((d.taken_at for d in known), default=None),
                    general_slowdown=geometric_mean(worst),
                    slowdown=worst,
                )
            )
        return tuple(reports)

    def register_application(
        self, name: str, identity: str, document: Mapping[str, Any]
    ) -> ApplicationReport:
        for field, value in (("name", name), ("identity", identity)):
            if not value:
                raise InputError("is missing.", field=field)
        self._store.put_application(name, identity, document)
        return ApplicationReport(
            name=name,
            identity=identity,
            document=dict(document),
            runs=self._store.count_runs(app=name),
            trained=tuple(sorted({entry.placement for entry in self._store.models(app=name)})),
        )

    def explain(self, question: Question) -> Explanation:
        from kongming import local_explanation

        node = resolve(self._store.nodes(), question.node)
        forecast = self._forecast(question, node)
        known = next(d for d in known_domains(self._store, node) if d.domain == forecast.domain)
        history = forecast.stale and question.stale_policy == "history"
        times = known.median_times() if history else known.newest.times()
        if forecast.basis == "model":
            file = self._model(question.app, forecast.placement, forecast.model_version)
            there = _carried(times, known.idle, file) if node.id != file.node_id else times
            ratios = {name: times[name] / seconds for name, seconds in there.items()}
            parts = local_explanation.by_model(file, there, question.model, ratios)
        else:
            readings = known.newest.surrogates
            families = {name: reading.family for name, reading in readings.items()}
            parts = local_explanation.by_node(times, known.idle, families)
        return Explanation(forecast, parts, known.taken_at)

    # -- records -------------------------------------------------------------------------------

    def models(self, app: str | None = None) -> tuple[ModelReport, ...]:
        return local_records.models(self._store, app)

    def model(self, app: str, placement: str | None = None, version: int = 0) -> ModelReport:
        return local_records.model(self._store, app, placement, version)

    def import_runs(self, records: Iterable[Run | Signature]) -> Imported:
        return local_records.import_runs(self._store, records)

    # -- jobs on several machines --------------------------------------------------------------

    def _job(self, question: Question, nodes: Sequence[NodeFacts]) -> Forecast:
        # Imported for such a question alone: it needs SciPy, which a node's own does not.
        from kongming.local_jobs import LocalScales, forecast_job

        scales = LocalScales(self._store, self._scale_files)
        return forecast_job(question, scales, self._forecast, lambda one: resolve(nodes, one))

    def _sets(self, question: RankQuestion, places: Sequence[RankedNode]) -> tuple[RankedSet, ...]:
        import numpy as np

        from kongming.local_jobs import LocalScales, ranked_sets

        scales = LocalScales(self._store, self._scale_files)
        tolerance = question.newcomer_weight * _tolerance(
            min(places, key=lambda place: place.score, default=None)
        )
        random = np.random.default_rng(question.seed)
        return ranked_sets(question, scales, places, tolerance=tolerance, random=random)

    # -- one node ------------------------------------------------------------------------------

    def _ranked(self, question: RankQuestion, node: NodeFacts) -> tuple[RankedNode | None, str]:
        """Its place, or why it has none."""
        if question.memory_bytes and 0 < node.memory_bytes < question.memory_bytes:
            return None, "memory"
        asked = Question(
            app=question.app,
            node=node.id,
            placement=question.placement,
            level=question.level,
            stale_policy=question.stale_policy,
        )
        try:
            forecast = self._forecast(asked, node)
        except StaleError:
            return None, "stale"
        except UntrainedError:
            return None, "no fingerprint or reference"
        except InputError:
            return None, "not comparable"
        slowdown = forecast.slowdown
        if question.slowdown_limit and slowdown.median > question.slowdown_limit:
            return None, "slowdown limit"
        return (
            RankedNode(
                node_id=node.id,
                name=node.name,
                domain=forecast.domain,
                score=question.newcomer_weight * math.log(slowdown.median),
                slowdown=slowdown,
                fingerprint_age_s=forecast.fingerprint_age_s,
                stale=forecast.stale,
                extrapolating=forecast.extrapolating,
            ),
            "",
        )

    def _forecast(self, question: Question, node: NodeFacts) -> Forecast:
        if question.resident_id:
            raise InputError(
                "is not known to a store.",
                field="resident_id",
                hint="A server knows what runs where: --server HOST:PORT.",
            )
        domains = known_domains(self._store, node)
        if question.domain is not None:
            domains = [known for known in domains if known.domain == question.domain]
        if not domains:
            raise UntrainedError(
                f"{node.name or node.id} has no fingerprint"
                + ("." if question.domain is None else f" of domain {question.domain}."),
                hint="Take one there: kongming fingerprint",
            )
        return min(
            (self._of_domain(question, known) for known in domains),
            key=lambda forecast: forecast.slowdown.median,
        )

    def _of_domain(self, question: Question, known: KnownDomain) -> Forecast:
        age = max(0.0, self._now() - known.taken_at)
        stale = age > TTL_S
        if stale and question.stale_policy == "refuse":
            raise StaleError(
                f"The newest fingerprint of {_name(known.node)} is {age:.0f} s old; {TTL_S:.0f} s "
                "is its time to live.",
                hint="Take one there, or allow an old one: --stale widen.",
            )
        history = stale and question.stale_policy == "history"
        times = known.median_times() if history else known.newest.times()
        version = self._version(
            question.app, question.placement, known.node.id, question.model_version
        )
        if version is None:
            forecast = self._node_only(question, known, times)
        else:
            forecast = self._by_model(question, known, times, *version)
        forecast = replace(forecast, fingerprint_age_s=age, stale=stale)
        if not stale:
            return forecast
        if history:
            said = f"used is the median of the newest {len(known.fingerprints)}"
        else:
            levels = [log_level(fingerprint.times()) for fingerprint in known.fingerprints]
            movement, said = movement_of(levels, age)
            higher = version is not None and self._model(question.app, *version).better == "higher"
            forecast = _widened(forecast, movement, higher_is_better=higher)
        return _warned(forecast, f"The newest fingerprint is {age:.0f} s old: {said}.")

    def _by_model(
        self, question: Question, known: KnownDomain, times: Times, placement: str, version: int
    ) -> Forecast:
        file = self._model(question.app, placement, version)
        warnings: tuple[str, ...] = ()
        if known.node.id != file.node_id:
            if not known.idle:
                raise UntrainedError(
                    f"{_name(known.node)} has no idle reference, without which a model of another "
                    "node says nothing of it.",
                    hint="Learn one there while it is idle: kongming reference",
                )
            times = _carried(times, known.idle, file)
            warnings = (
                "The model is of another node: the slowdown carries over, the runtime only as "
                "far as both are alike.",
            )
        else:
            check_suite(file, known.newest.suite_version, "The fingerprint")
        said = predict_environment(
            file, times, model=question.model, strict=question.strict, level=question.level
        )
        return Forecast(
            app=question.app,
            node_id=known.node.id,
            domain=known.domain,
            placement=placement,
            basis="model",
            slowdown=said.slowdown,
            model=said.model,
            model_version=version,
            solo_s=said.solo_s,
            runtime_s=said.runtime_s,
            metric_unit=said.metric_unit,
            extrapolating=said.extrapolating,
            drivers=said.drivers,
            warnings=(*warnings, *said.warnings),
            notes=said.notes,
        )

    def _node_only(self, question: Question, known: KnownDomain, times: Times) -> Forecast:
        slowdown = general_slowdown(known.slowdown(times), question.level)
        if slowdown is None:
            raise UntrainedError(
                f"{question.app} has no model, and {_name(known.node)} no idle reference to tell "
                "its general slowdown by.",
                hint="Learn one there while it is idle: kongming reference",
            )
        return Forecast(
            app=question.app,
            node_id=known.node.id,
            domain=known.domain,
            placement=question.placement or DEFAULT_PLACEMENT,
            basis="node-only",
            slowdown=slowdown,
            warnings=(self._unknown(question.app),),
        )

    def _unknown(self, app: str) -> str:
        names = {entry.name for entry in self._store.applications()}
        names |= {entry.app for entry in self._store.models()}
        if app in names:
            why = f"{app} has no model (kongming train {app})"
        else:
            near = UnknownNameError("application", app, names).suggestions
            meant = f"; did you mean {' or '.join(near)}?" if near else ""
            why = f"Nobody profiled {app}{meant}"
        return f"{why}: this is the node's general slowdown, which knows nothing of it."

    # -- models --------------------------------------------------------------------------------

    def _version(
        self, app: str, placement: str | None, node_id: str | None, wanted: int
    ) -> tuple[str, int] | None:
        """Placement and version of the model that answers: the wanted one, else the newest of
        the node, else the one in service. None without any.

        Raises:
            UnknownNameError: the wanted version is not there.
        """
        entries = self._store.models(app=app)
        placements = {entry.placement for entry in entries}
        if placement is None:
            placement = next(iter(placements)) if len(placements) == 1 else DEFAULT_PLACEMENT
        entries = [entry for entry in entries if entry.placement == placement]
        if wanted:
            if wanted not in {entry.version for entry in entries}:
                raise UnknownNameError(
                    f"version of the model of {app} at {placement}",
                    str(wanted),
                    [str(entry.version) for entry in entries],
                )
            return placement, wanted
        if not entries:
            return None
        own = [entry.version for entry in entries if entry.node_id == node_id]
        return placement, own[0] if own else (
            self._store.in_service(app, placement) or entries[0].version
        )

    def _model(self, app: str, placement: str, version: int) -> ModelFile:
        key = (app, placement, version)
        if key not in self._models:
            self._models[key] = read(self._store.model(app, placement, version=version))
        return self._models[key]


def _name(node: NodeFacts) -> str:
    return node.name or node.id


def _carried(times: Times, idle: Times, file: ModelFile) -> dict[str, float]:
    """A node's environment as the model's node would show it: the slowdowns over idle carry."""
    reference = {n: s for v in file.variants.values() for n, s in idle_times(v).items()}
    return {
        name: reference[name] * seconds / idle[name]
        for name, seconds in times.items()
        if name in reference and name in idle
    }


def _widened(forecast: Forecast, movement: float, *, higher_is_better: bool) -> Forecast:
    """The intervals as wide as they are once the node's log slowdown may have moved by so much."""
    slowdown = widened(forecast.slowdown, movement)
    runtime, solo = forecast.runtime_s, forecast.solo_s
    if runtime is not None and solo is not None:
        ends = (
            (solo / slowdown.upper, solo / slowdown.lower)
            if higher_is_better
            else (solo * slowdown.lower, solo * slowdown.upper)
        )
        runtime = replace(runtime, lower=ends[0], upper=ends[1], calibrated=False)
    return replace(forecast, slowdown=slowdown, runtime_s=runtime)


def _warned(forecast: Forecast, warning: str) -> Forecast:
    return replace(forecast, warnings=(*forecast.warnings, warning))


def _ordered(places: Sequence[RankedNode], seed: int | None) -> tuple[RankedNode, ...]:
    """Best first; those that the first one's interval cannot tell from it in a random order."""
    ordered = sorted(places, key=lambda place: (place.score, place.name, place.node_id))
    if not ordered:
        return ()
    within = ordered[0].score + _tolerance(ordered[0])
    tied = [replace(place, tied_with_first=True) for place in ordered if place.score <= within]
    random.Random(seed).shuffle(tied)
    return (*tied, *ordered[len(tied) :])


def _tolerance(best: RankedNode | None) -> float:
    """What a log slowdown may differ by from that of the best node and be tied with it."""
    if best is None:
        return 0.0
    return TIE_SHARE * 0.5 * math.log(best.slowdown.upper / best.slowdown.lower)
