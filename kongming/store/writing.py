"""Statements that write measurements, within the caller's transaction."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite

from kongming.records import moments
from kongming.records.errors import UnknownNameError
from kongming.records.fingerprint import Fingerprint, NodeFacts
from kongming.records.run import Run, Signature
from kongming.store import compact, schema, service_schema
from kongming.store.feed import Noted
from kongming.store.reference import Reference
from kongming.store.row_ids import record_id, row_id

PURPOSES = ("adhoc", "reference", "level", "before", "after", "signature", "idle", "live")
"""Purposes of fingerprints. Live ones are aggregated into hourly statistics over time."""

_FACTS_REFRESH = timedelta(hours=1)
"""Unchanged facts are rewritten after this time, to outdate older facts reported late."""

_FUTURE = timedelta(minutes=5)
"""Tolerated clock skew: what is dated further in the future is replaced by whatever comes next."""

_BATCH = 500
"""Maximum number of ids in a statement: databases limit the number of parameters."""


def utc(moment: str, field: str = "started_at") -> datetime:
    """Parse an ISO 8601 time into a naive UTC datetime, the form of the columns."""
    return moments.parse(moment, field).replace(tzinfo=None)


def now() -> datetime:
    return datetime.now(UTC).replace(tzinfo=None)


def _outdated(stored: sa.ColumnElement[datetime], new: sa.ColumnElement[datetime]) -> Any:
    """Return whether what is stored is of no later time, or of one that a wrong clock gave it."""
    return sa.or_(stored <= new, stored > now() + _FUTURE)


def insert(connection: sa.Connection, table: sa.Table) -> sqlite.Insert | postgresql.Insert:
    """Create the dialect's INSERT statement, which supports ON CONFLICT."""
    if connection.dialect.name == "postgresql":
        return postgresql.insert(table)
    return sqlite.insert(table)


def wrote(
    connection: sa.Connection,
    statement: sqlite.Insert | postgresql.Insert,
    column: sa.Column[Any],
) -> bool:
    """Execute an INSERT and return whether it wrote its row; row counts differ by driver."""
    return connection.execute(statement.returning(column)).first() is not None


def put_node(connection: sa.Connection, noted: Noted, node: NodeFacts, seen_at: datetime) -> None:
    """Store a node's facts unless newer ones are stored."""
    facts_id, _ = compact.facts(node)
    put_nodes(connection, noted, {node.id: (node, facts_id, seen_at)})


def put_nodes(
    connection: sa.Connection, noted: Noted, nodes: Mapping[str, tuple[NodeFacts, str, datetime]]
) -> None:
    """Store nodes' facts, by node: with the id of their part, and when they were read."""
    table = schema.node
    stored_rows = {
        row.id: row
        for ids in batches(nodes)
        for row in connection.execute(
            sa.select(table.c.id, table.c.facts, table.c.seen_at).where(table.c.id.in_(ids))
        )
    }
    rows = []
    # The same order everywhere prevents deadlocks between writers.
    for node_id, (node, facts_id, seen_at) in sorted(nodes.items(), key=lambda item: item[0]):
        stored = stored_rows.get(node_id)
        is_dated = seen_at > datetime.min
        if stored is not None and not (is_dated and stored.seen_at > now() + _FUTURE):
            if seen_at <= stored.seen_at:
                continue
            if stored.facts == facts_id and seen_at - stored.seen_at < _FACTS_REFRESH:
                continue
        if stored is None or stored.facts != facts_id:
            noted.note("node", node_id, node_id)
        rows.append(
            {"id": node_id, "seen_at": seen_at, "facts": facts_id, "document": node.to_dict()}
        )
    if not rows:
        return
    statement = insert(connection, table)
    new = statement.excluded
    connection.execute(
        statement.on_conflict_do_update(
            index_elements=["id"],
            set_={"seen_at": new.seen_at, "facts": new.facts, "document": new.document},
            where=_outdated(table.c.seen_at, new.seen_at),
        ),
        rows,
    )


class PackedFingerprint(NamedTuple):
    """Checked fingerprint with its row and parts; prepared outside of any transaction."""

    fingerprint: Fingerprint
    purpose: str
    row: dict[str, Any]
    parts: compact.Parts


def pack_fingerprint(
    fingerprint: Fingerprint,
    purpose: str,
    facts_of: Callable[[NodeFacts], tuple[str, object]] = compact.facts,
) -> PackedFingerprint:
    """Encode a fingerprint for storage.

    Raises:
        UnknownNameError: there is no such purpose.
    """
    if purpose not in PURPOSES:
        raise UnknownNameError("purpose of a fingerprint", purpose, PURPOSES)
    document, parts = compact.pack(fingerprint, facts_of)
    row = {
        "id": row_id(fingerprint.node.id, fingerprint.id),
        "node_id": fingerprint.node.id,
        "suite_version": fingerprint.suite_version,
        "purpose": purpose,
        "cpu": fingerprint.cpu,
        "started_at": utc(fingerprint.started_at),
        "document": document,
    }
    return PackedFingerprint(fingerprint, purpose, row, parts)


def add_fingerprint(
    connection: sa.Connection, noted: Noted, fingerprint: Fingerprint, purpose: str
) -> None:
    add_fingerprints(connection, noted, [pack_fingerprint(fingerprint, purpose)])


def add_fingerprints(
    connection: sa.Connection, noted: Noted, packed: Sequence[PackedFingerprint]
) -> set[str]:
    """Store fingerprints and their nodes; return the row ids of the new ones."""
    if not packed:
        return set()
    nodes: dict[str, tuple[NodeFacts, str, datetime]] = {}
    for entry in packed:
        node_id, seen_at = entry.row["node_id"], entry.row["started_at"]
        if node_id not in nodes or nodes[node_id][2] < seen_at:
            nodes[node_id] = (entry.fingerprint.node, entry.row["document"]["facts"], seen_at)
    put_nodes(connection, noted, nodes)
    stored_ids = _stored_ids(connection, schema.fingerprint, [entry.row["id"] for entry in packed])
    new = {entry.row["id"]: entry for entry in packed if entry.row["id"] not in stored_ids}
    if not new:
        return set()
    put_parts(
        connection, noted, {key: doc for entry in new.values() for key, doc in entry.parts.items()}
    )
    connection.execute(
        insert(connection, schema.fingerprint).on_conflict_do_nothing(index_elements=["id"]),
        [entry.row for entry in new.values()],
    )
    _put_latest(connection, noted, [entry.row for entry in new.values() if entry.purpose == "live"])
    return set(new)


def put_parts(connection: sa.Connection, noted: Noted, parts: compact.Parts) -> None:
    """Store the parts that rows of this transaction refer to, where they are missing."""
    missing = {k: v for k, v in parts.items() if k not in noted.known and k not in noted.parts}
    if missing:
        connection.execute(
            insert(connection, schema.part).on_conflict_do_nothing(index_elements=["id"]),
            [{"id": key, "document": document} for key, document in sorted(missing.items())],
        )
        noted.parts.update(missing)


def _put_latest(connection: sa.Connection, noted: Noted, rows: Iterable[dict[str, Any]]) -> None:
    newest: dict[tuple[str, int], dict[str, Any]] = {}
    for row in rows:
        slot = (row["node_id"], row["cpu"])
        if slot not in newest or newest[slot]["started_at"] <= row["started_at"]:
            newest[slot] = row
    if not newest:
        return
    table = service_schema.latest
    statement = insert(connection, table)
    new = statement.excluded
    connection.execute(
        statement.on_conflict_do_update(
            index_elements=["node_id", "cpu"],
            set_={"started_at": new.started_at, "fingerprint_id": new.fingerprint_id},
            where=_outdated(table.c.started_at, new.started_at),
        ),
        [
            {
                "node_id": node_id,
                "cpu": cpu,
                "started_at": row["started_at"],
                "fingerprint_id": row["id"],
            }
            for (node_id, cpu), row in sorted(newest.items())
        ],
    )
    for (node_id, _), row in sorted(newest.items()):
        noted.note("fingerprint", node_id, record_id(row["id"]))


def add_run(connection: sa.Connection, noted: Noted, run: Run) -> None:
    add_runs(connection, noted, [(run, True)])


def add_runs(connection: sa.Connection, noted: Noted, runs: Sequence[tuple[Run, bool]]) -> set[str]:
    """Store runs with their fingerprints, each with whether it was asked for; return the row ids
    of the new ones."""
    by_row_id = {row_id(run.node_id, run.id): (run, requested) for run, requested in runs}
    stored = _stored_ids(connection, schema.run, by_row_id)
    new = {key: entry for key, entry in by_row_id.items() if key not in stored}
    add_fingerprints(
        connection,
        noted,
        [
            pack_fingerprint(fingerprint, purpose)
            for run, _ in new.values()
            for fingerprint, purpose in (
                (run.before, "before"),
                (run.fingerprint, "level"),
                (run.after, "after"),
            )
            if fingerprint is not None
        ],
    )
    rows = [
        {
            "id": key,
            "app": run.app,
            "identity": run.identity,
            "node_id": run.node_id,
            "placement": run.placement,
            "kind": run.kind,
            "ok": run.ok,
            "campaign": run.campaign,
            "step": run.step,
            "metric_unit": run.metric_unit,
            "asked": requested,
            "started_at": utc(run.started_at),
            "fingerprint_id": _row_id(run.fingerprint),
            "before_id": _row_id(run.before),
            "after_id": _row_id(run.after),
            "document": _without_fingerprints(run.to_dict()),
        }
        for key, (run, requested) in new.items()
    ]
    if rows:
        connection.execute(
            insert(connection, schema.run).on_conflict_do_nothing(index_elements=["id"]), rows
        )
    for run, requested in new.values():
        # What intervals are widened by is read from these.
        if requested and (run.kind in ("corun", "solo") or run.neighbours):
            noted.note("calibration", run.app, run.placement)
    return set(new)


def add_application(
    connection: sa.Connection, name: str, identity: str, document: Mapping[str, Any]
) -> None:
    connection.execute(
        insert(connection, schema.application)
        .values(name=name, identity=identity, put_at=now(), document=dict(document))
        .on_conflict_do_nothing(index_elements=["name", "identity"])
    )


def add_signature(connection: sa.Connection, noted: Noted, signature: Signature) -> None:
    add_signatures(connection, noted, [(signature, True)])


def add_signatures(
    connection: sa.Connection, noted: Noted, signatures: Sequence[tuple[Signature, bool]]
) -> set[str]:
    """Store signatures with their fingerprints, each with whether it was asked for; return the
    row ids of the new ones."""
    by_row_id = {
        row_id(signature.node_id, signature.id): (signature, requested)
        for signature, requested in signatures
    }
    stored_ids = _stored_ids(connection, schema.signature, by_row_id)
    new = {key: entry for key, entry in by_row_id.items() if key not in stored_ids}
    add_fingerprints(
        connection,
        noted,
        [pack_fingerprint(signature.fingerprint, "signature") for signature, _ in new.values()],
    )
    rows = [
        {
            "id": key,
            "app": signature.app,
            "identity": signature.identity,
            "node_id": signature.node_id,
            "placement": signature.placement,
            "campaign": signature.campaign,
            "step": signature.step,
            "asked": requested,
            "started_at": utc(signature.fingerprint.started_at),
            "fingerprint_id": _row_id(signature.fingerprint),
            "document": _without_fingerprints(signature.to_dict()),
        }
        for key, (signature, requested) in new.items()
    ]
    if rows:
        connection.execute(
            insert(connection, schema.signature).on_conflict_do_nothing(index_elements=["id"]),
            rows,
        )
    for signature, requested in new.values():
        noted.note("signature", signature.app, signature.id)
        if requested:
            noted.note("calibration", signature.app, signature.placement)
    return set(new)


def put_reference(connection: sa.Connection, noted: Noted, reference: Reference) -> None:
    statement = insert(connection, schema.reference).values(
        node_id=reference.node_id,
        suite_version=reference.suite_version,
        cpu=reference.cpu,
        taken_at=utc(reference.taken_at, "taken_at"),
        document=reference.to_dict(),
    )
    new = statement.excluded
    newest = statement.on_conflict_do_update(
        index_elements=["node_id", "suite_version", "cpu"],
        set_={"taken_at": new.taken_at, "document": new.document},
        where=_outdated(schema.reference.c.taken_at, new.taken_at),
    )
    if wrote(connection, newest, schema.reference.c.node_id):
        key = f"{reference.suite_version}/{reference.cpu}"
        noted.note("reference", reference.node_id, key)


def _row_id(fingerprint: Fingerprint | None) -> str | None:
    return None if fingerprint is None else row_id(fingerprint.node.id, fingerprint.id)


def _stored_ids(connection: sa.Connection, table: sa.Table, ids: Collection[str]) -> set[str]:
    """Ids that the table already contains."""
    return {
        row_id
        for batch in batches(ids)
        for row_id in connection.scalars(sa.select(table.c.id).where(table.c.id.in_(batch)))
    }


def batches(ids: Iterable[str]) -> Iterator[list[str]]:
    """Split ids into lists that fit into one statement."""
    all_ids = list(ids)
    for start in range(0, len(all_ids), _BATCH):
        yield all_ids[start : start + _BATCH]


def _without_fingerprints(document: dict[str, Any]) -> dict[str, Any]:
    return {k: v for k, v in document.items() if k not in ("fingerprint", "before", "after")}
