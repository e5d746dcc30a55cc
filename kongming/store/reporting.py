"""Ingestion of agents' reports: records of many nodes in one transaction, each stored once."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import sqlalchemy as sa

from kongming.records.errors import InputError
from kongming.records.fingerprint import Fingerprint
from kongming.records.run import Run, Signature
from kongming.store import schema, service_schema, writing
from kongming.store.reference import Reference
from kongming.store.service_entries import Accepted, Refused, Reported
from kongming.store.service_records import acknowledge
from kongming.store.unpacking import COLUMNS, Unpacking
from kongming.store.writing import batches


class Reporting(Unpacking):
    """Store methods for agents' reports."""

    def add_reported(self, batch: Sequence[Reported]) -> Accepted:
        """Store reported records of any number of nodes in one transaction.

        A record whose id is known of its node is a duplicate, and changes nothing. One that cannot
        be kept is refused and the others are kept. The nodes' acknowledged numbers rise to the
        highest sequence here, refused ones included: sending those again would not help. A
        fingerprint of purpose ``reference`` becomes the reference of its CPU where it is newer.
        """
        prints: list[writing.PackedFingerprint] = []
        runs: list[tuple[Run, bool]] = []
        signatures: list[tuple[Signature, bool]] = []
        refused: list[Refused] = []
        for reported in batch:
            record = reported.record
            try:
                if isinstance(record, Fingerprint):
                    prints.append(writing.pack_fingerprint(record, reported.purpose, self._facts))
                elif isinstance(record, Run):
                    runs.append((record, reported.requested))
                else:
                    signatures.append((record, reported.requested))
            except InputError as error:
                refused.append(Refused(record.id, error.field or "", str(error), reported.node_id))
        sequences: dict[str, int] = {}
        for reported in batch:
            sequences[reported.node_id] = max(sequences.get(reported.node_id, 0), reported.sequence)
        with self._changing() as (connection, noted):
            new = writing.add_fingerprints(connection, noted, prints)
            for packed in prints:
                if packed.purpose == "reference" and packed.row["id"] in new:
                    reference = _reference(packed.fingerprint)
                    writing.put_reference(connection, noted, reference)
            new |= writing.add_runs(connection, noted, runs)
            new |= writing.add_signatures(connection, noted, signatures)
            if sequences:
                acknowledge(connection, sequences)
        refused_ids = {(entry.node_id, entry.id) for entry in refused}
        committed = {
            reported.row_id: reported.record.id
            for reported in batch
            if (reported.node_id, reported.record.id) not in refused_ids
        }
        return Accepted(
            new=tuple(record for key, record in committed.items() if key in new),
            duplicates=tuple(record for key, record in committed.items() if key not in new),
            refused=tuple(refused),
            rows=frozenset(committed.keys() & new),
        )

    def latest_fingerprints(self, node_ids: Collection[str] | None = None) -> list[Fingerprint]:
        """Return the newest live fingerprint of each CPU, of ``node_ids`` or of all nodes."""
        latest, table = service_schema.latest, schema.fingerprint
        query = (
            sa.select(*COLUMNS)
            .join_from(latest, table, latest.c.fingerprint_id == table.c.id)
            .order_by(latest.c.node_id, latest.c.cpu)
        )
        with self._reading() as connection:
            if node_ids is None:
                return list(self._unpacked(connection, query))
            return [
                fingerprint
                for batch in batches(sorted(node_ids))
                for fingerprint in self._unpacked(
                    connection, query.where(latest.c.node_id.in_(batch))
                )
            ]


def _reference(fingerprint: Fingerprint) -> Reference:
    return Reference(
        node_id=fingerprint.node.id,
        suite_version=fingerprint.suite_version,
        cpu=fingerprint.cpu,
        times=fingerprint.times(),
        readings=1,
        taken_at=fingerprint.started_at,
    )
