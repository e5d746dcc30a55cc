"""Nodes, fingerprints, runs, signatures and references: what was measured, kept as it was."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import datetime

import sqlalchemy as sa

from kongming.errors import UnknownNameError
from kongming.fingerprint import Fingerprint, NodeFacts
from kongming.run import Run, Signature
from kongming.store import schema, writing
from kongming.store.campaigns import StoredApplication
from kongming.store.reference import Reference
from kongming.store.unpacking import COLUMNS, Unpacking
from kongming.store.writing import batches


class Records(Unpacking):
    """The part of the store that holds measurements."""

    # -- nodes ---------------------------------------------------------------------------------

    def put_node(self, node: NodeFacts) -> None:
        """Keep a node's facts as they are now, in place of older ones."""
        with self._changing() as (connection, noted):
            writing.put_node(connection, noted, node, writing.now())

    def nodes(self, *, node_ids: Collection[str] | None = None) -> list[NodeFacts]:
        """All nodes, or those of these ids that are held; by name."""
        table = schema.node
        with self._reading() as connection:
            if node_ids is None:
                found = list(connection.scalars(sa.select(table.c.document)))
            else:
                found = [
                    document
                    for batch in batches(node_ids)
                    for document in connection.scalars(
                        sa.select(table.c.document).where(table.c.id.in_(batch))
                    )
                ]
        return sorted((NodeFacts.from_dict(d) for d in found), key=lambda n: (n.name, n.id))

    def node(self, node_id: str) -> NodeFacts:
        """Raises UnknownNameError."""
        found = self.nodes(node_ids=[node_id])
        if not found:
            raise UnknownNameError("node", node_id, {node.id for node in self.nodes()})
        return found[0]

    # -- fingerprints --------------------------------------------------------------------------

    def add_fingerprint(self, fingerprint: Fingerprint, purpose: str = "adhoc") -> None:
        """Keep a fingerprint and its node; one that is there already (by id) stays as it is."""
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
        """Fingerprints that match all that is given, newest first."""
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
        """Why each fingerprint was taken, by id."""
        table = schema.fingerprint
        with self._reading() as connection:
            return {i: p for i, p in connection.execute(sa.select(table.c.id, table.c.purpose))}

    # -- runs ----------------------------------------------------------------------------------

    def add_run(self, run: Run) -> None:
        """Keep a run with the fingerprints that it holds; on disk when this returns.

        A run that is there already (by id) stays as it is.

        Raises:
            InputError: a number that cannot be true (negative or infinite time, NaN).
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
        limit: int | None = None,
        fingerprints: bool = True,
    ) -> list[Run]:
        """Runs that match all that is given, oldest first; ``limit`` keeps the newest ones.

        ``fingerprints`` False leaves those of the runs None, which is faster.
        """
        table = schema.run
        query = (
            sa.select(table.c.fingerprint_id, table.c.before_id, table.c.after_id, table.c.document)
            .where(*_equal(table, app=app, identity=identity, node_id=node_id, placement=placement))
            .where(*_equal(table, kind=kind, campaign=campaign, ok=ok))
            .order_by(table.c.started_at.desc(), table.c.step.desc(), table.c.id.desc())
            .limit(limit)
        )
        with self._reading() as connection:
            rows = connection.execute(query).all()[::-1]
            ids = {i for row in rows for i in row[:3] if i is not None} if fingerprints else set()
            prints = self._by_id(connection, ids)
        return [
            replace(
                Run.from_dict(document),
                fingerprint=prints.get(during),
                before=prints.get(before),
                after=prints.get(after),
            )
            for during, before, after, document in rows
        ]

    def count_runs(self, *, app: str | None = None) -> int:
        query = sa.select(sa.func.count()).select_from(schema.run)
        with self._reading() as connection:
            return connection.scalar(query.where(*_equal(schema.run, app=app))) or 0

    # -- signatures ----------------------------------------------------------------------------

    def add_signature(self, signature: Signature) -> None:
        """Keep a signature and its fingerprint; one that is there already stays as it is."""
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
    ) -> list[Signature]:
        """Signatures that match all that is given, newest first."""
        table = schema.signature
        query = (
            sa.select(table.c.document, table.c.fingerprint_id)
            .where(*_equal(table, app=app, identity=identity, node_id=node_id, placement=placement))
            .where(*_equal(table, campaign=campaign))
            .order_by(table.c.started_at.desc(), table.c.id)
        )
        with self._reading() as connection:
            rows = connection.execute(query).all()
            prints = self._by_id(connection, {seen for _, seen in rows})
        return [
            Signature.from_dict(document | {"fingerprint": prints[seen].to_dict()})
            for document, seen in rows
        ]

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
        """Keep what surrogates cost on the idle node, in place of an older reference of that CPU.

        ``times`` are seconds per operation by surrogate, ``taken_at`` is UTC in ISO 8601.
        """
        reference = Reference(node_id, suite_version, placement_cpu, times, readings, taken_at)
        with self._changing() as (connection, noted):
            writing.put_reference(connection, noted, reference)

    def reference(
        self, node_id: str, suite_version: str, cpu: int | None = None
    ) -> Reference | None:
        """The newest reference of a node, for one CPU or any; None without any."""
        found = self.references(node_id=node_id, suite_version=suite_version, cpu=cpu)
        return found[0] if found else None

    def references(
        self,
        *,
        node_id: str | None = None,
        suite_version: str | None = None,
        cpu: int | None = None,
    ) -> list[Reference]:
        """References that match all that is given, newest first."""
        table = schema.reference
        query = (
            sa.select(table.c.document)
            .where(*_equal(table, node_id=node_id, suite_version=suite_version, cpu=cpu))
            .order_by(table.c.taken_at.desc(), table.c.cpu)
        )
        with self._reading() as connection:
            return [Reference.from_dict(d) for d in connection.scalars(query)]

    # -- whole exports -------------------------------------------------------------------------

    def add_all(
        self,
        *,
        nodes: Iterable[NodeFacts] = (),
        applications: Iterable[StoredApplication] = (),
        fingerprints: Iterable[tuple[Fingerprint, str]] = (),
        runs: Iterable[Run] = (),
        signatures: Iterable[Signature] = (),
        references: Iterable[Reference] = (),
    ) -> dict[str, int]:
        """Keep all of it or, on an error, nothing; tells how many of each kind were new.

        ``fingerprints`` come with their purposes. Nodes, references and applications that are
        known already stay, unless a reference or a fingerprint's node is newer.
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
