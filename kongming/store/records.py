"""Nodes, fingerprints, runs, signatures and references: measurements, stored unchanged."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from kongming.records.errors import UnknownNameError
from kongming.records.fingerprint import Fingerprint, NodeFacts
from kongming.records.run import Run, Signature
from kongming.store import schema, writing
from kongming.store.campaigns import StoredApplication
from kongming.store.reference import Reference
from kongming.store.unpacking import COLUMNS, Unpacking
from kongming.store.writing import batches


class Records(Unpacking):
    """Store methods for measurements."""

    # -- nodes ---------------------------------------------------------------------------------

    def put_node(self, node: NodeFacts) -> None:
        """Insert or replace a node's facts."""
        with self._changing() as (connection, noted):
            writing.put_node(connection, noted, node, writing.now())

    def nodes(self, *, node_ids: Collection[str] | None = None) -> list[NodeFacts]:
        """Return all nodes, or those of ``node_ids`` that are stored; by name."""
        table = schema.node
        query = sa.select(table.c.id, table.c.document)
        with self._reading() as connection:
            if node_ids is None:
                rows = list(connection.execute(query))
            else:
                rows = [
                    row
                    for batch in batches(node_ids)
                    for row in connection.execute(query.where(table.c.id.in_(batch)))
                ]
        nodes = self._each(
            "a node", rows, lambda row: NodeFacts.from_dict(row.document), lambda row: row.id
        )
        return sorted(nodes, key=lambda n: (n.name, n.id))

    def node(self, node_id: str) -> NodeFacts:
        """Return a node's facts. Raises UnknownNameError."""
        matches = self.nodes(node_ids=[node_id])
        if not matches:
            raise UnknownNameError("node", node_id, {node.id for node in self.nodes()})
        return matches[0]

    # -- fingerprints --------------------------------------------------------------------------

    def add_fingerprint(self, fingerprint: Fingerprint, purpose: str = "adhoc") -> None:
        """Store a fingerprint and its node; one that is already stored (by id) is unchanged."""
        with self._changing() as (connection, noted):
            writing.add_fingerprint(connection, noted, fingerprint, purpose)

    def fingerprints(
        self,
        *,
        node_id: str | None = None,
        suite_version: str | None = None,
        purpose: str | None = None,
        cpu: int | None = None,
        limit: int | None = None,
    ) -> list[Fingerprint]:
        """Return the fingerprints that match all filters, newest first."""
        table = schema.fingerprint
        query = (
            sa.select(*COLUMNS)
            .where(*_equal(table, node_id=node_id, suite_version=suite_version, cpu=cpu))
            .where(*_equal(table, purpose=purpose))
            .order_by(table.c.started_at.desc(), table.c.id)
            .limit(limit)
        )
        with self._reading() as connection:
            return list(self._unpacked(connection, query))

    def fingerprint_purposes(self) -> dict[str, str]:
        """Return the purpose of each fingerprint, by ``row_id``."""
        table = schema.fingerprint
        with self._reading() as connection:
            rows = connection.execute(sa.select(table.c.id, table.c.purpose))
            return {key: purpose for key, purpose in rows}

    # -- runs ----------------------------------------------------------------------------------

    def add_run(self, run: Run) -> None:
        """Store a run with its fingerprints; durable when this returns.

        A run that is already stored (by id) is unchanged.

        Raises:
            InputError: a value that is not plausible (negative or infinite time, NaN).
        """
        with self._changing() as (connection, noted):
            writing.add_run(connection, noted, run)

    def runs(
        self,
        *,
        app: str | None = None,
        identity: str | None = None,
        node_id: str | None = None,
        placement: str | None = None,
        kind: str | None = None,
        campaign: str | None = None,
        ok: bool | None = None,
        requested: bool | None = None,
        limit: int | None = None,
        fingerprints: bool = True,
    ) -> list[Run]:
        """Return the runs that match all filters, oldest first; ``limit`` selects the newest ones.

        ``requested`` True selects those that an operator or a server asked for.

        With ``fingerprints`` False the runs' fingerprints are None, which is faster.
        """
        table = schema.run
        query = (
            sa.select(
                table.c.fingerprint_id,
                table.c.before_id,
                table.c.after_id,
                table.c.document,
                table.c.id,
            )
            .where(*_equal(table, app=app, identity=identity, node_id=node_id, placement=placement))
            .where(*_equal(table, kind=kind, campaign=campaign, ok=ok, asked=requested))
            .order_by(table.c.started_at.desc(), table.c.step.desc(), table.c.id.desc())
            .limit(limit)
        )
        with self._reading() as connection:
            rows = connection.execute(query).all()[::-1]
            ids = {i for row in rows for i in row[:3] if i is not None} if fingerprints else set()
            prints = self._by_row_id(connection, ids)

        def run(row: Any) -> Run:
            during, before, after, document, _ = row
            return replace(
                Run.from_dict(document),
                fingerprint=prints.get(during),
                before=prints.get(before),
                after=prints.get(after),
            )

        return list(self._each("a run", rows, run, lambda row: row.id))

    def count_runs(self, *, app: str | None = None) -> int:
        """Count the runs, of all applications or of one."""
        query = sa.select(sa.func.count()).select_from(schema.run)
        with self._reading() as connection:
            return connection.scalar(query.where(*_equal(schema.run, app=app))) or 0

    def count_runs_by_app(self, *, requested: bool | None = None) -> dict[str, int]:
        """Count the runs of each application that has any; ``requested`` as for ``runs``."""
        run = schema.run
        query = sa.select(run.c.app, sa.func.count()).group_by(run.c.app)
        query = query.where(*_equal(run, asked=requested))
        with self._reading() as connection:
            return {app: count for app, count in connection.execute(query)}

    # -- signatures ----------------------------------------------------------------------------

    def add_signature(self, signature: Signature) -> None:
        """Store a signature and its fingerprint; one that is already stored is unchanged."""
        with self._changing() as (connection, noted):
            writing.add_signature(connection, noted, signature)

    def signatures(
        self,
        *,
        app: str | None = None,
        identity: str | None = None,
        node_id: str | None = None,
        placement: str | None = None,
        campaign: str | None = None,
        requested: bool | None = None,
    ) -> list[Signature]:
        """Return the signatures that match all filters, newest first."""
        table = schema.signature
        query = (
            sa.select(table.c.document, table.c.fingerprint_id, table.c.id)
            .where(*_equal(table, app=app, identity=identity, node_id=node_id, placement=placement))
            .where(*_equal(table, campaign=campaign, asked=requested))
            .order_by(table.c.started_at.desc(), table.c.id)
        )
        with self._reading() as connection:
            rows = connection.execute(query).all()
            prints = self._by_row_id(connection, {row.fingerprint_id for row in rows})

        def signature(row: Any) -> Signature:
            fingerprint = prints[row.fingerprint_id].to_dict()
            return Signature.from_dict(row.document | {"fingerprint": fingerprint})

        return list(self._each("a signature", rows, signature, lambda row: row.id))

    # -- references ----------------------------------------------------------------------------

    def put_reference(
        self,
        node_id: str,
        suite_version: str,
        placement_cpu: int,
        times: Mapping[str, float],
        readings: int,
        taken_at: str,
    ) -> None:
        """Store the surrogates' times on the idle node; replaces an older reference of that CPU.

        ``times`` are seconds per operation by surrogate, ``taken_at`` is UTC in ISO 8601.
        """
        reference = Reference(node_id, suite_version, placement_cpu, times, readings, taken_at)
        with self._changing() as (connection, noted):
            writing.put_reference(connection, noted, reference)

    def reference(
        self, node_id: str, suite_version: str, cpu: int | None = None
    ) -> Reference | None:
        """Return the newest reference of a node, for one CPU or any; None if there is none."""
        matches = self.references(node_id=node_id, suite_version=suite_version, cpu=cpu)
        return matches[0] if matches else None

    def references(
        self,
        *,
        node_id: str | None = None,
        suite_version: str | None = None,
        cpu: int | None = None,
    ) -> list[Reference]:
        """Return the references that match all filters, newest first."""
        table = schema.reference
        query = (
            sa.select(table.c.document, table.c.node_id)
            .where(*_equal(table, node_id=node_id, suite_version=suite_version, cpu=cpu))
            .order_by(table.c.taken_at.desc(), table.c.cpu)
        )
        with self._reading() as connection:
            rows = connection.execute(query).all()
        references = self._each(
            "a reference of node",
            rows,
            lambda row: Reference.from_dict(row.document),
            lambda row: row.node_id,
        )
        return list(references)

    # -- imports -------------------------------------------------------------------------------

    def add_all(
        self,
        *,
        nodes: Iterable[NodeFacts] = (),
        applications: Iterable[StoredApplication] = (),
        fingerprints: Iterable[tuple[Fingerprint, str]] = (),
        runs: Iterable[Run] = (),
        signatures: Iterable[Signature] = (),
        references: Iterable[Reference] = (),
        unrequested: Iterable[Run | Signature] = (),
    ) -> dict[str, int]:
        """Store all records atomically; return the number of new records of each kind.

        ``fingerprints`` are pairs with their purposes; no model learns from ``unrequested``. Stored
        nodes, references and applications are kept, unless a reference or a fingerprint's node is
        newer.
        """
        with self._changing() as (connection, noted):
            tables = ("node", "application", "fingerprint", "run", "signature", "reference")
            before = {name: _count(connection, name) for name in tables}
            for node in nodes:
                writing.put_node(connection, noted, node, datetime.min)
            for app in applications:
                writing.add_application(connection, app.name, app.identity, app.document)
            for fingerprint, purpose in fingerprints:
                writing.add_fingerprint(connection, noted, fingerprint, purpose)
            for run in runs:
                writing.add_run(connection, noted, run)
            for signature in signatures:
                writing.add_signature(connection, noted, signature)
            for record in unrequested:
                if isinstance(record, Run):
                    writing.add_runs(connection, noted, [(record, False)])
                else:
                    writing.add_signatures(connection, noted, [(record, False)])
            for reference in references:
                writing.put_reference(connection, noted, reference)
            return {name: _count(connection, name) - before[name] for name in tables}


def _count(connection: sa.Connection, name: str) -> int:
    table = schema.metadata.tables[name]
    return connection.scalar(sa.select(sa.func.count()).select_from(table)) or 0


def _equal(table: sa.Table, **values: object) -> Iterator[sa.ColumnElement[bool]]:
    for name, value in values.items():
        if value is not None:
            yield table.c[name] == value
