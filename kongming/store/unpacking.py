"""Reading fingerprints: rows of any schema revision, with the parts that they refer to."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any

import sqlalchemy as sa

from kongming.records.errors import StoreError
from kongming.records.fingerprint import Fingerprint
from kongming.store import compact, schema
from kongming.store.connection import NOT_READABLE
from kongming.store.feed import Feed
from kongming.store.row_ids import record_id, row_id
from kongming.store.writing import batches

COLUMNS = (
    schema.fingerprint.c.id,
    schema.fingerprint.c.cpu,
    schema.fingerprint.c.suite_version,
    schema.fingerprint.c.document,
)
"""Columns to select in queries for fingerprints."""


class Unpacking(Feed):
    """Store methods for reading fingerprints; caches their parts."""

    def _by_row_id(self, connection: sa.Connection, ids: set[str]) -> dict[str, Fingerprint]:
        fingerprints: dict[str, Fingerprint] = {}
        for batch in batches(sorted(ids)):
            query = sa.select(*COLUMNS).where(schema.fingerprint.c.id.in_(batch))
            fingerprints.update(
                (row_id(p.node.id, p.id), p) for p in self._unpacked(connection, query)
            )
        return fingerprints

    def _unpacked(self, connection: sa.Connection, query: sa.Select[Any]) -> Iterator[Fingerprint]:
        """Decode the fingerprints of a query of ``COLUMNS``."""
        rows = connection.execute(query).all()
        parts = self._parts_of(connection, [row.document for row in rows])
        yield from self._each(
            "a fingerprint",
            rows,
            lambda row: compact.unpack(
                record_id(row.id), row.cpu, row.suite_version, row.document, parts
            ),
            lambda row: row.id,
        )

    def _parts_of(self, connection: sa.Connection, documents: Sequence[Any]) -> compact.Parts:
        """Parts that the documents of rows refer to, by id."""
        part_ids: set[str] = set()
        for document in documents:
            # One that is damaged says so when it is decoded.
            with suppress(*NOT_READABLE):
                part_ids.update(compact.part_ids(document))
        return self._parts_of_ids(connection, part_ids)

    def _parts_of_ids(self, connection: sa.Connection, part_ids: set[str]) -> compact.Parts:
        """Parts by id, from the cache or the database."""
        cache = self._parts
        parts = {key: cache[key] for key in part_ids if key in cache}
        missing = sorted(part_ids - parts.keys())
        table = schema.part
        read: compact.Parts = {}
        for batch in batches(missing):
            query = sa.select(table.c.id, table.c.document).where(table.c.id.in_(batch))
            read.update((key, document) for key, document in connection.execute(query))
        if len(read) < len(missing) and self.damage is None:
            first_missing = min(set(missing) - read.keys())
            raise StoreError(
                f"The store has lost part {first_missing} of its fingerprints.",
                hint="Restore it from a copy or an export.",
            )
        self._remember(read)
        return parts | read
