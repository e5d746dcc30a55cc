"""A store as an ``Oracle``: the engine, loaded with what each question needs, and listings."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from kongming import local_records
from kongming.engine.engine import Engine
from kongming.engine.load import Needs, load
from kongming.engine.load.models import ModelFiles
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
from kongming.records.errors import KongmingError
from kongming.records.questions import ColocationQuestion, Question, RankQuestion
from kongming.records.run import Run, Signature
from kongming.store import Store

if TYPE_CHECKING:
    from kongming.scale.fit.model import ScaleFile

_REFRESH_S = 600.0
"""Seconds that bringing a ranking up to date may take: it is done once, and never cut short."""


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
        now = self._now()
        return self._engine(Needs.of([question]), now).predict_colocation(question, now)

    def rank(self, question: RankQuestion) -> Ranking:
        began, now = time.monotonic(), self._now()
        engine = self._engine(Needs.of([question]), now)
        engine.refresh(now, _REFRESH_S)
        ranking = engine.rank(question, now)
        warnings = self._tracked(question)
        return replace(
            ranking,
            elapsed_s=time.monotonic() - began,
            sets=tuple(replace(one, warnings=(*one.warnings, *warnings)) for one in ranking.sets),
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
        return local_records.register_application(self._store, name, identity, document)

    def promote_model(
        self, app: str, placement: str | None = None, version: int = 0
    ) -> ModelReport:
        return local_records.promote_model(self._store, app, placement, version)

    def models(self, app: str | None = None) -> tuple[ModelReport, ...]:
        return local_records.models(self._store, app)

    def model(self, app: str, placement: str | None = None, version: int = 0) -> ModelReport:
        return local_records.model(self._store, app, placement, version)

    def import_runs(self, records: Iterable[Run | Signature]) -> Imported:
        return local_records.import_runs(self._store, records)

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
