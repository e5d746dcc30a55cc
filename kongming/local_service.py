"""A store as a ``PredictionService``: the engine, loaded for each question, and listings."""

from __future__ import annotations

import itertools
import json
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from kongming.engine.engine import Engine
from kongming.engine.load import Needs, load
from kongming.engine.load.models import ModelFiles, put_into_service
from kongming.records.answers import (
    ApplicationReport,
    Colocation,
    Explanation,
    Forecast,
    Imported,
    ModelReport,
    NodeReport,
    Ranking,
)
from kongming.records.application import registered
from kongming.records.errors import InputError, KongmingError, UntrainedError
from kongming.records.fingerprint import PLACEMENTS
from kongming.records.moments import unix
from kongming.records.questions import (
    ColocationQuestion,
    Question,
    RankQuestion,
    placement_or_default,
)
from kongming.records.run import Run, Signature
from kongming.store import Store

if TYPE_CHECKING:
    from kongming.scale.fit.scale_file import ScaleFile

_BATCH = 500
"""Records that are stored together."""

_REFRESH_S = 600.0
"""Seconds that bringing a ranking up to date may take: it is done once, and never cut short."""


class LocalService:
    """``LocalService(store).rank(RankQuestion("sort"))``; ``now`` gives unix seconds, and
    ``scale_files`` are scale models in addition to the store's, by the name that questions have for
    them.
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
        self._files = ModelFiles(store)

    def predict(self, questions: Sequence[Question]) -> tuple[Forecast | KongmingError, ...]:
        now = self._now()
        engine = self._engine(Needs.of(questions), now)
        answers: list[Forecast | KongmingError] = []
        for question in questions:
            try:
                answers.append(self._with_tracked(question, engine.predict(question, now)))
            except KongmingError as error:
                answers.append(error)
        return tuple(answers)

    def predict_colocation(self, question: ColocationQuestion) -> Colocation:
        engine = self._engine(Needs.of([question]), self._now())
        return engine.predict_colocation(question)

    def rank(self, question: RankQuestion) -> Ranking:
        began, now = time.monotonic(), self._now()
        engine = self._engine(Needs.of([question]), now)
        engine.refresh(now, _REFRESH_S)
        ranking = engine.rank(question, now)
        warnings = self._tracked(question)
        return replace(
            ranking,
            elapsed_s=time.monotonic() - began,
            sets=tuple(
                replace(node_set, warnings=(*node_set.warnings, *warnings))
                for node_set in ranking.sets
            ),
        )

    def explain(self, question: Question) -> Explanation:
        now = self._now()
        return self._engine(Needs.of([question]), now).explain(question, now)

    def nodes(self) -> tuple[NodeReport, ...]:
        now = self._now()
        return tuple(self._engine(Needs(nodes=None), now).nodes(now))

    # -- records -------------------------------------------------------------------------------

    def register_application(
        self, name: str, identity: str, document: Mapping[str, Any]
    ) -> ApplicationReport:
        """Make an application known. Raises InputError without a name or an identity, and for what
        is no table of an application."""
        for field, value in (("name", name), ("identity", identity)):
            if not value:
                raise InputError("is missing.", field=field)
        self._store.put_application(name, identity, registered(name, document))
        return self.application(name, identity)

    def application(self, name: str, identity: str) -> ApplicationReport:
        """Report on an application. ``identity`` is that of its runs, which counts unless another
        was registered."""
        stored = self._store.application(name)
        return ApplicationReport(
            name=name,
            identity=identity if stored is None else stored.identity,
            document={} if stored is None else dict(stored.document),
            runs=self._store.count_runs(app=name),
            trained=_in_order(self._trained(name)),
        )

    def applications_of(
        self, names: Sequence[str], identities: Mapping[str, str]
    ) -> dict[str, ApplicationReport]:
        """Report on many as ``application`` does, with one query of each kind for all of them."""
        stored = {entry.name: entry for entry in self._store.stored_applications()}
        counts = self._store.count_runs_by_app()
        trained: dict[str, set[str]] = defaultdict(set)
        for entry in self._store.models():
            trained[entry.app].add(entry.placement)
        return {
            name: ApplicationReport(
                name,
                stored[name].identity if name in stored else identities[name],
                dict(stored[name].document) if name in stored else {},
                counts.get(name, 0),
                _in_order(trained[name]),
            )
            for name in names
        }

    def promote_model(
        self, app: str, placement: str | None = None, version: int = 0
    ) -> ModelReport:
        """Put a version into service, 0 for the one before; raises InputError without one, and
        where it is damaged."""
        placement = placement_or_default(placement, self._trained(app))
        reason = "an operator of the store said so"
        chosen = put_into_service(self._store, app, placement, version, reason)
        return next(
            model
            for model in self.models(app)
            if (model.placement, model.version) == (placement, chosen)
        )

    def models(self, app: str | None = None) -> tuple[ModelReport, ...]:
        """List models by application and placement, newest first, without documents."""
        serving = self._store.models_in_service(app=app)
        return tuple(
            ModelReport(
                app=entry.app,
                placement=entry.placement,
                version=entry.version,
                identity=entry.identity,
                node_id=entry.node_id,
                trained_at=unix(entry.trained_at),
                chosen="",
                in_service=serving.get((entry.app, entry.placement)) == entry.version,
            )
            for entry in self._store.models(app=app)
        )

    def model(self, app: str, placement: str | None = None, version: int = 0) -> ModelReport:
        """One model with its document. Raises UntrainedError where it is not there."""
        placement = placement_or_default(placement, self._trained(app))
        serving = self._store.in_service(app, placement)
        wanted = version or serving or 0
        document = self._store.model(app, placement, version=wanted)
        if document is None:
            what = f"no version {version} of the model" if version else "no model"
            raise UntrainedError(
                f"There is {what} of {app} at {placement}.",
                hint=f"Train it: kongming train {app}",
            )
        return ModelReport(
            app=app,
            placement=placement,
            version=wanted,
            identity=str(document.get("identity", "")),
            node_id=str(document.get("node_id", "")),
            trained_at=unix(str(document["trained_at"])) if "trained_at" in document else None,
            chosen=str(document.get("chosen", "")),
            in_service=wanted == serving,
            document=json.dumps(document, sort_keys=True, separators=(",", ":")),
        )

    def import_runs(self, records: Iterable[Run | Signature]) -> Imported:
        """Keep what is new."""
        runs = signatures = duplicates = 0
        waiting = iter(records)
        while batch := list(itertools.islice(waiting, _BATCH)):
            new = self._store.add_all(
                runs=[record for record in batch if isinstance(record, Run)],
                signatures=[record for record in batch if isinstance(record, Signature)],
            )
            runs, signatures = runs + new["run"], signatures + new["signature"]
            duplicates += len(batch) - new["run"] - new["signature"]
        return Imported(runs, signatures, duplicates)

    def _trained(self, app: str) -> set[str]:
        """The placements at which an application has a model."""
        return {entry.placement for entry in self._store.models(app=app)}

    # -- the engine ----------------------------------------------------------------------------

    def _engine(self, needs: Needs, now: float) -> Engine:
        """A new one for each call: others may have changed the store since the last."""
        engine = load(self._store, needs, now, files=self._files)
        for name, file in self._scale_files.items():
            engine.put_scale_model(name, file)
        return engine

    def _with_tracked(self, question: Question, forecast: Forecast) -> Forecast:
        warnings = (*forecast.warnings, *self._tracked(question))
        return replace(forecast, warnings=tuple(dict.fromkeys(warnings)))

    def _tracked(self, question: Question | RankQuestion) -> tuple[str, ...]:
        """Warnings of files that a scale model was fitted with and that have changed since: they
        are on this machine, which no server can know."""
        file = None
        if question.scaling is not None:
            file = self._scale_files.get(question.scaling.model or question.app)
        if file is None:
            return ()
        from kongming.scale.fit.tracked_files import changes

        return tuple(changes(file.tracked)[1])


def _in_order(placements: Collection[str]) -> tuple[str, ...]:
    return tuple(placement for placement in PLACEMENTS if placement in placements)
