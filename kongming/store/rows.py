"""Conversion between store records and the rows of an export."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from kongming.records.errors import (
    MALFORMED,
    IncompatibleError,
    InputError,
    KongmingError,
    UnknownNameError,
)
from kongming.records.fingerprint import Fingerprint, NodeFacts
from kongming.records.run import Run, Signature
from kongming.store import Store, StoredApplication
from kongming.store.reference import Reference
from kongming.store.row_ids import row_id

TEXTS = ("record", "id", "app", "node_id", "placement", "kind", "levels", "started_at")
NUMBERS = ("wall_s", "metric")
"""Flat columns of a row, in addition to its ``document``."""

Row = dict[str, Any]

_REQUESTED = "requested"
"""Key in the document of a run or a signature: False where no model may learn from it. Exports of
earlier versions, and of what was requested, do not have it."""


def of_store(store: Store, apps: Collection[str] | None) -> Iterator[Row]:
    """Yield export rows in import order: referenced records before those that refer to them."""
    profiled = {entry.name for entry in store.applications()}
    profiled |= {signature.app for signature in store.signatures()}
    for app in apps or ():
        if app not in profiled:
            raise UnknownNameError("profiled application", app, profiled)
    # One query per kind: a store fits into memory. A server may add and delete meanwhile: of what
    # is read in between, the purposes before and after have all.
    purposes = store.fingerprint_purposes()
    # Each with whether it was requested.
    runs = [
        (run, requested)
        for requested in (True, False)
        for run in store.runs(requested=requested)
        if apps is None or run.app in apps
    ]
    signatures = [
        (signature, requested)
        for requested in (True, False)
        for signature in store.signatures(requested=requested)
        if apps is None or signature.app in apps
    ]
    measured = store.fingerprints() if apps is None else []
    purposes |= store.fingerprint_purposes()
    for run, _ in runs:
        measured += [p for p in (run.fingerprint, run.before, run.after) if p is not None]
    measured += [signature.fingerprint for signature, _ in signatures]
    prints = {row_id(p.node.id, p.id): p for p in measured}
    measured_on = {run.node_id for run, _ in runs} | {p.node.id for p in prints.values()}
    nodes = [node for node in store.nodes() if apps is None or node.id in measured_on]
    ids = {node.id for node in nodes}
    for node in nodes:
        yield _row("node", node.id, node.to_dict(), node_id=node.id)
    for reference in store.references():
        if reference.node_id in ids:
            key = f"{reference.node_id}/{reference.suite_version}/{reference.cpu}"
            yield _row(
                "reference",
                key,
                reference.to_dict(),
                node_id=reference.node_id,
                started_at=reference.taken_at,
            )
    for entry in store.stored_applications():
        if apps is None or entry.name in apps:
            document = {"name": entry.name, "identity": entry.identity, "document": entry.document}
            yield _row("application", f"{entry.name}/{entry.identity}", document, app=entry.name)
    for key, fingerprint in prints.items():
        yield _row(
            "fingerprint",
            fingerprint.id,
            fingerprint.to_dict(),
            node_id=fingerprint.node.id,
            kind=purposes[key],
            started_at=fingerprint.started_at,
        )
    for run, requested in runs:
        yield _run_row(run, _marks(requested))
    for signature, requested in signatures:
        document = signature.to_dict() | {"fingerprint": signature.fingerprint.id}
        yield _row(
            "signature",
            signature.id,
            document | _marks(requested),
            app=signature.app,
            node_id=signature.node_id,
            placement=signature.placement,
            started_at=signature.fingerprint.started_at,
        )


def _marks(requested: bool) -> Row:
    return {} if requested else {_REQUESTED: False}


def _run_row(run: Run, marks: Row) -> Row:
    document = run.to_dict() | marks
    prints = {"fingerprint": run.fingerprint, "before": run.before, "after": run.after}
    for key, fingerprint in prints.items():
        document[key] = None if fingerprint is None else fingerprint.id
    return _row(
        "run",
        run.id,
        document,
        app=run.app,
        node_id=run.node_id,
        placement=run.placement,
        kind=run.kind,
        levels=", ".join(map(str, run.levels)) or ", ".join(run.neighbours),
        started_at=run.started_at,
        wall_s=run.wall_s,
        metric=run.metric,
    )


def _row(record: str, key: str, document: Mapping[str, Any], **columns: Any) -> Row:
    flat = dict.fromkeys((*TEXTS, *NUMBERS)) | columns
    return flat | {"record": record, "id": key, "document": json.dumps(document, allow_nan=False)}


def to_records(rows: Iterable[Row], source: str) -> dict[str, list[Any]]:
    """Convert rows to records by kind, keyed as ``Store.add_all`` takes them.

    Raises:
        InputError: a row is not valid; names ``source`` and the row, from 0.
        IncompatibleError: a record has a newer schema.
    """
    records: dict[str, list[Any]] = {
        "nodes": [],
        "references": [],
        "applications": [],
        "fingerprints": [],
        "runs": [],
        "signatures": [],
        "unrequested": [],
    }
    prints: dict[tuple[str, str], Fingerprint] = {}
    for number, row in enumerate(rows):
        kind = f"{row['record']}s"
        try:
            if kind not in records:
                raise InputError("is unknown.", field="record", value=row["record"])
            document = _document(row["document"])
            record = _record(kind, document, row["kind"], prints)
            if isinstance(record, Run | Signature) and document.get(_REQUESTED) is False:
                kind = "unrequested"
            records[kind].append(record)
        except (KongmingError, *MALFORMED) as error:
            reason = error.message if isinstance(error, KongmingError) else repr(error)
            error_class = IncompatibleError if isinstance(error, IncompatibleError) else InputError
            raise error_class(f"Row {number} of {source} is not valid: {reason}") from error
    return records


def _document(text: str) -> Any:
    """Raises ValueError for what is not JSON, or has half a surrogate pair, which no message of a
    server that is asked for it later could hold."""
    document = json.loads(text)
    if "\\u" in text:
        json.dumps(document, ensure_ascii=False).encode()
    return document


def _record(
    kind: str, document: Row, purpose: str | None, prints: dict[tuple[str, str], Fingerprint]
) -> object:
    if kind == "nodes":
        return NodeFacts.from_dict(document)
    if kind == "references":
        return Reference.from_dict(document)
    if kind == "applications":
        return StoredApplication(
            str(document["name"]), str(document["identity"]), dict(document["document"])
        )
    if kind == "fingerprints":
        fingerprint = Fingerprint.from_dict(document)
        prints[fingerprint.node.id, fingerprint.id] = fingerprint
        return fingerprint, purpose
    measured = {
        # Whoever measures chooses the ids: records of several nodes may have one.
        name: prints[str(document["node_id"]), str(document[name])]
        for name in ("fingerprint", "before", "after")
        if document.get(name) is not None
    }
    if kind == "signatures":
        return Signature.from_dict(document | {"fingerprint": measured["fingerprint"].to_dict()})
    return replace(
        Run.from_dict(document | {"fingerprint": None, "before": None, "after": None}),
        fingerprint=measured.get("fingerprint"),
        before=measured.get("before"),
        after=measured.get("after"),
    )
