"""What a local store holds of models, as a service would tell it; and records put into it."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Mapping
from typing import Any

from kongming.records.answers import ApplicationReport, Imported, ModelReport
from kongming.records.errors import InputError, UntrainedError
from kongming.records.moments import unix
from kongming.records.questions import placement_or_default
from kongming.records.run import Run, Signature
from kongming.store import Store

_BATCH = 500


def register_application(
    store: Store, name: str, identity: str, document: Mapping[str, Any]
) -> ApplicationReport:
    """Make an application known. Raises InputError without a name or an identity."""
    for field, value in (("name", name), ("identity", identity)):
        if not value:
            raise InputError("is missing.", field=field)
    store.put_application(name, identity, document)
    return ApplicationReport(
        name=name,
        identity=identity,
        document=dict(document),
        runs=store.count_runs(app=name),
        trained=tuple(sorted({entry.placement for entry in store.models(app=name)})),
    )


def models(store: Store, app: str | None) -> tuple[ModelReport, ...]:
    """By application and placement, newest first, without documents."""
    serving = store.models_in_service(app=app)
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
        for entry in store.models(app=app)
    )


def promote_model(store: Store, app: str, placement: str | None, version: int) -> ModelReport:
    """Put a version into service, 0 for the one before; raises InputError without one."""
    trained = {entry.placement for entry in store.models(app=app)}
    placement = placement_or_default(placement, trained)
    chosen = store.roll_back(app, placement, version, "an operator of the store said so")
    return next(
        one for one in models(store, app) if (one.placement, one.version) == (placement, chosen)
    )


def model(store: Store, app: str, placement: str | None, version: int) -> ModelReport:
    """One model with its document. Raises UntrainedError where it is not there."""
    trained = {entry.placement for entry in store.models(app=app)}
    placement = placement_or_default(placement, trained)
    serving = store.in_service(app, placement)
    wanted = version or serving or 0
    document = store.model(app, placement, version=wanted)
    if document is None:
        what = f"no version {version} of the model" if version else "no model"
        raise UntrainedError(
            f"There is {what} of {app} at {placement}.", hint=f"Train it: kongming train {app}"
        )

    def said(key: str) -> Any:
        return document.get(key, "")

    return ModelReport(
        app=app,
        placement=placement,
        version=wanted,
        identity=str(said("identity")),
        node_id=str(said("node_id")),
        trained_at=unix(str(said("trained_at"))) if "trained_at" in document else None,
        chosen=str(said("chosen")),
        in_service=wanted == serving,
        document=json.dumps(document, sort_keys=True, separators=(",", ":")),
    )


def import_runs(store: Store, records: Iterable[Run | Signature]) -> Imported:
    """Keep what is new."""
    runs = signatures = duplicates = 0
    waiting = iter(records)
    while batch := list(itertools.islice(waiting, _BATCH)):
        new = store.add_all(
            runs=[one for one in batch if isinstance(one, Run)],
            signatures=[one for one in batch if isinstance(one, Signature)],
        )
        runs, signatures = runs + new["run"], signatures + new["signature"]
        duplicates += len(batch) - new["run"] - new["signature"]
    return Imported(runs, signatures, duplicates)
