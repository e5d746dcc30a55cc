"""Statements that write measurements, inside a transaction of the caller's."""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite

from kongming.errors import InputError, UnknownNameError
from kongming.fingerprint import Fingerprint, NodeFacts
from kongming.run import Run, Signature
from kongming.store import schema
from kongming.store.reference import Reference

PURPOSES = ("adhoc", "reference", "level", "before", "after", "signature", "idle")
"""Why a fingerprint was taken."""


def utc(moment: str, field: str = "started_at") -> datetime:
    """The time of an ISO 8601 text, as a UTC time without zone, as the columns have it."""
    try:
        parsed = datetime.fromisoformat(moment)
    except ValueError as error:
        raise InputError(
            "is no time.", field=field, found=moment, allowed="ISO 8601, as 2026-01-31T12:00:00Z"
        ) from error
    return parsed.astimezone(UTC).replace(tzinfo=None) if parsed.tzinfo else parsed


def now() -> datetime:
    return datetime.now(UTC).replace(tzinfo=None)


def iso(moment: datetime) -> str:
    return moment.isoformat(timespec="seconds") + "Z"


def insert(connection: sa.Connection, table: sa.Table) -> sqlite.Insert | postgresql.Insert:
    """An INSERT that can say what happens on a conflict: each dialect has its own class."""
    if connection.dialect.name == "postgresql":
        return postgresql.insert(table)
    return sqlite.insert(table)


def _check_run(run: Run) -> None:
    """Refuse numbers that cannot be true. A metric of 0 or less is kept: the run is not ok."""
    if not 0.0 <= run.wall_s < math.inf:
        raise InputError(
            "cannot be true.", field="wall_s", found=run.wall_s, allowed="a finite time"
        )
    if run.metric is not None and not math.isfinite(run.metric):
        raise InputError("cannot be true.", field="metric", found=run.metric)


def put_node(connection: sa.Connection, node: NodeFacts, seen_at: datetime) -> None:
    statement = insert(connection, schema.node).values(
        id=node.id, seen_at=seen_at, document=node.to_dict()
    )
    new = statement.excluded
    connection.execute(
        statement.on_conflict_do_update(
            index_elements=["id"],
            set_={"seen_at": new.seen_at, "document": new.document},
            where=schema.node.c.seen_at < new.seen_at,
        )
    )


def add_fingerprint(connection: sa.Connection, fingerprint: Fingerprint, purpose: str) -> None:
    if purpose not in PURPOSES:
        raise UnknownNameError("purpose of a fingerprint", purpose, PURPOSES)
    started_at = utc(fingerprint.started_at)
    put_node(connection, fingerprint.node, started_at)
    connection.execute(
        insert(connection, schema.fingerprint)
        .values(
            id=fingerprint.id,
            node_id=fingerprint.node.id,
            suite_version=fingerprint.suite_version,
            purpose=purpose,
            cpu=fingerprint.cpu,
            started_at=started_at,
            document=fingerprint.to_dict(),
        )
        .on_conflict_do_nothing(index_elements=["id"])
    )


def add_run(connection: sa.Connection, run: Run) -> None:
    _check_run(run)
    for fingerprint, purpose in (
        (run.before, "before"),
        (run.fingerprint, "level"),
        (run.after, "after"),
    ):
        if fingerprint is not None:
            add_fingerprint(connection, fingerprint, purpose)
    connection.execute(
        insert(connection, schema.run)
        .values(
            id=run.id,
            app=run.app,
            identity=run.identity,
            node_id=run.node_id,
            placement=run.placement,
            kind=run.kind,
            ok=run.ok,
            campaign=run.campaign,
            step=run.step,
            metric_unit=run.metric_unit,
            started_at=utc(run.started_at),
            fingerprint_id=None if run.fingerprint is None else run.fingerprint.id,
            before_id=None if run.before is None else run.before.id,
            after_id=None if run.after is None else run.after.id,
            document=_without_fingerprints(run.to_dict()),
        )
        .on_conflict_do_nothing(index_elements=["id"])
    )


def add_application(
    connection: sa.Connection, name: str, identity: str, document: Mapping[str, Any]
) -> None:
    connection.execute(
        insert(connection, schema.application)
        .values(name=name, identity=identity, put_at=now(), document=dict(document))
        .on_conflict_do_nothing(index_elements=["name", "identity"])
    )


def add_signature(connection: sa.Connection, signature: Signature) -> None:
    add_fingerprint(connection, signature.fingerprint, "signature")
    connection.execute(
        insert(connection, schema.signature)
        .values(
            id=signature.id,
            app=signature.app,
            identity=signature.identity,
            node_id=signature.node_id,
            placement=signature.placement,
            campaign=signature.campaign,
            step=signature.step,
            started_at=utc(signature.fingerprint.started_at),
            fingerprint_id=signature.fingerprint.id,
            document=_without_fingerprints(signature.to_dict()),
        )
        .on_conflict_do_nothing(index_elements=["id"])
    )


def put_reference(connection: sa.Connection, reference: Reference) -> None:
    # Through the JSON form, which refuses numbers that cannot be true.
    document = Reference.from_dict(reference.to_dict()).to_dict()
    statement = insert(connection, schema.reference).values(
        node_id=reference.node_id,
        suite_version=reference.suite_version,
        cpu=reference.cpu,
        taken_at=utc(reference.taken_at, "taken_at"),
        document=document,
    )
    new = statement.excluded
    connection.execute(
        statement.on_conflict_do_update(
            index_elements=["node_id", "suite_version", "cpu"],
            set_={"taken_at": new.taken_at, "document": new.document},
            where=schema.reference.c.taken_at <= new.taken_at,
        )
    )


def _without_fingerprints(document: dict[str, Any]) -> dict[str, Any]:
    return {k: v for k, v in document.items() if k not in ("fingerprint", "before", "after")}
