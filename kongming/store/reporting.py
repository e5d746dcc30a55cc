"""What agents deliver: many records of many nodes in one transaction, each taken once."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Sequence

import sqlalchemy as sa

from kongming.errors import InputError
from kongming.fingerprint import Fingerprint
from kongming.run import Run, Signature
from kongming.store import schema, service_schema, writing
from kongming.store.reference import Reference
from kongming.store.service_entries import Accepted, Refused, Reported
from kongming.store.service_records import acknowledge
from kongming.store.unpacking import COLUMNS, Unpacking
from kongming.store.writing import batches


class Reporting(Unpacking):
    """The part of the store that takes what agents report."""

    def add_reported(self, batch: Sequence[Reported]) -> Accepted:
        """Keep what was reported, of any number of nodes, all of it in one transaction.

        A record whose id is known is a duplicate, and changes nothing. One that cannot be true is
        refused and the others are kept. The nodes' acknowledged numbers rise to the highest
        sequence here, refused ones included: sending those again would not help. A fingerprint of
        purpose ``reference`` becomes the reference of its CPU where it is newer.
        """
        prints: list[writing.PackedFingerprint] = []
        runs: list[Run] = []
        signatures: list[Signature] = []
        refused: list[Refused] = []
        for reported in batch:
            record = reported.record
            try:
                if isinstance(record, Fingerprint):
                    prints.append(writing.pack_fingerprint(record, reported.purpose, self._facts))
                elif isinstance(record, Run):
                    _check(record, (record.before, record.fingerprint, record.after))
                    writing.check_run(record)
                    runs.append(record)
                else:
                    _check(record, (record.fingerprint,))
                    signatures.append(record)
            except InputError as error:
                refused.append(Refused(record.id, error.field or "", str(error)))
        numbers: dict[str, int] = {}
        for reported in batch:
            numbers[reported.node_id] = max(numbers.get(reported.node_id, 0), reported.sequence)
        with self._changing() as (connection, noted):
            new = writing.add_fingerprints(connection, noted, prints)
            for one in prints:
                if one.purpose == "reference" and one.fingerprint.id in new:
                    writing.put_reference(connection, noted, _reference(one.fingerprint))
            new |= writing.add_runs(connection, noted, runs)
            new |= writing.add_signatures(connection, noted, signatures)
            if numbers:
                acknowledge(connection, numbers)
        left_out = {one.id for one in refused}
        taken = list(dict.fromkeys(r.record.id for r in batch if r.record.id not in left_out))
        return Accepted(
            new=tuple(key for key in taken if key in new),
            duplicates=tuple(key for key in taken if key not in new),
            refused=tuple(refused),
        )

    def latest_fingerprints(self, node_ids: Collection[str] | None = None) -> list[Fingerprint]:
        """The newest live fingerprint of each CPU, of these nodes or of all."""
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


def _check(record: Run | Signature, prints: Iterable[Fingerprint | None]) -> None:
    for fingerprint in prints:
        if fingerprint is not None:
            writing.pack_fingerprint(fingerprint, "live")
    try:
        json.dumps(record.to_dict(), allow_nan=False)
    except ValueError as error:
        raise InputError(f"A record cannot be kept: {error}.") from error


def _reference(fingerprint: Fingerprint) -> Reference:
    return Reference(
        node_id=fingerprint.node.id,
        suite_version=fingerprint.suite_version,
        cpu=fingerprint.cpu,
        times=fingerprint.times(),
        readings=1,
        taken_at=fingerprint.started_at,
    )
