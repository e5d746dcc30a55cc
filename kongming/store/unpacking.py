"""Reading fingerprints: rows of any revision, with the parts that they name."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import sqlalchemy as sa

from kongming.errors import StoreError
from kongming.fingerprint import Fingerprint
from kongming.store import compact, schema
from kongming.store.feed import Feed
from kongming.store.writing import batches

COLUMNS = (
    schema.fingerprint.c.id,
    schema.fingerprint.c.cpu,
    schema.fingerprint.c.suite_version,
    schema.fingerprint.c.document,
)
"""What a query selects that gives fingerprints."""


class Unpacking(Feed):
    """The part of the store that reads fingerprints, and keeps their parts at hand."""

    def fingerprints_by_id(self, ids: Sequence[str]) -> dict[str, Fingerprint]:
        """Those of these fingerprints that are held."""
        with self._reading() as connection:
            return self._by_id(connection, set(ids))

    def _by_id(self, connection: sa.Connection, ids: set[str]) -> dict[str, Fingerprint]:
        found: dict[str, Fingerprint] = {}
        for batch in batches(sorted(ids)):
            query = sa.select(*COLUMNS).where(schema.fingerprint.c.id.in_(batch))
            found.update((p.id, p) for p in self._unpacked(connection, query))
        return found

    def _unpacked(self, connection: sa.Connection, query: sa.Select[Any]) -> Iterator[Fingerprint]:
        """The fingerprints of a query of ``COLUMNS``."""
        rows = connection.execute(query).all()
        parts = self._parts_of(connection, [row.document for row in rows])
        for row in rows:
            yield compact.unpack(row.id, row.cpu, row.suite_version, row.document, parts)

    def _parts_of(self, connection: sa.Connection, documents: Sequence[Any]) -> compact.Parts:
        """The parts that rows name."""
        wanted = {key for document in documents for key in compact.part_ids(document)}
        return self._parts_of_ids(connection, wanted)

    def _parts_of_ids(self, connection: sa.Connection, wanted: set[str]) -> compact.Parts:
        """Parts by id: at hand, or read."""
        held = self._parts
        parts = {key: held[key] for key in wanted if key in held}
        missing = sorted(wanted - parts.keys())
        table = schema.part
        read: compact.Parts = {}
        for batch in batches(missing):
            query = sa.select(table.c.id, table.c.document).where(table.c.id.in_(batch))
            read.update((key, document) for key, document in connection.execute(query))
        if len(read) < len(missing):
            lost = min(set(missing) - read.keys())
            raise StoreError(
                f"The store has lost part {lost} of its fingerprints.",
                hint="Restore it from a copy or an export.",
            )
        self._remember(read)
        return parts | read
