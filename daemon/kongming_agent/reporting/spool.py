"""The spool of undelivered records on disk: no record is lost, and none is delivered as two.

One SQLite file. A record is committed (WAL, synchronous FULL) before ``add_*`` returns, and stays
until the server says that it has committed it. Records go out in the order of their sequence.
The agent and a profiling process may use one file at once.
"""

from __future__ import annotations

import json
import logging
import sqlite3
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from kongming.records.errors import InputError, StoreError
from kongming.records.fingerprint import Fingerprint
from kongming.records.run import Run, Signature
from kongming_agent.reporting.delivery import (
    Entry,
    Kind,
    reported_fingerprint,
    reported_run,
    reported_signature,
)
from kongming_agent.reporting.spool_schema import open_file

_SIZE = "SELECT coalesce(sum(length(body)), 0) FROM records"

MOST_SEQUENCE = 2**52
"""Acknowledged numbers up to this one are believed; servers take twice as many."""

_log = logging.getLogger(__name__)


class DuplicateError(StoreError):
    """A record of this id is in the spool already."""


class Spool:
    """The spool at ``path``; created if missing. ``most_bytes`` limits fingerprints.

    Raises:
        StoreError: the file cannot be opened.
        IncompatibleError: it was written by a newer agent.
    """

    def __init__(self, path: Path, most_bytes: int = 64 << 20) -> None:
        self.path = path
        self._most_bytes = most_bytes
        self._lock = threading.RLock()
        self.thinned = 0
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            if isinstance(error, FileExistsError | NotADirectoryError):
                raise InputError(
                    "is a file, or in one.",
                    field="files.state",
                    value=str(path.parent),
                    hint="Name a folder with --state.",
                ) from error
            raise StoreError(f"{path.parent} cannot be created: {error.strerror}.") from error
        try:
            self._database = open_file(path)
        except sqlite3.DatabaseError as error:
            if isinstance(error, sqlite3.OperationalError):
                raise StoreError(f"The spool {path} cannot be opened: {error}.") from error
            # Damaged, as by a broken disk: the agent starts a new one; the old file can be repaired
            # by hand.
            aside = path.with_name(f"{path.name}.damaged-{time.time_ns()}")
            path.replace(aside)
            for tail in ("-wal", "-shm"):
                path.with_name(path.name + tail).unlink(missing_ok=True)
            _log.error("the spool was damaged (%s); it is kept as %s", error, aside)
            self._database = open_file(path)

    def close(self) -> None:
        with self._lock:
            self._database.close()

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        """One transaction; any failure of SQLite is a StoreError and changes nothing."""
        with self._lock:
            try:
                self._database.execute("BEGIN IMMEDIATE")
                try:
                    yield self._database
                except BaseException:
                    self._roll_back()
                    raise
                try:
                    self._database.execute("COMMIT")
                except sqlite3.Error:
                    self._roll_back()
                    raise
            except sqlite3.IntegrityError as error:
                raise DuplicateError(f"The spool {self.path} holds the record already.") from error
            except sqlite3.Error as error:
                raise StoreError(
                    f"The spool {self.path} cannot be written: {error}.",
                    hint="Is its disk full?",
                ) from error

    def _roll_back(self) -> None:
        # A full disk rolls back by itself.
        if self._database.in_transaction:
            self._database.execute("ROLLBACK")

    def _read(self, query: str, values: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
        with self._lock:
            try:
                return self._database.execute(query, values).fetchall()
            except sqlite3.Error as error:
                raise StoreError(f"The spool {self.path} cannot be read: {error}.") from error

    # What comes in

    def add_fingerprint(self, fingerprint: Fingerprint, purpose: str, domain: int) -> int:
        """Store a fingerprint (``purpose``: live or reference) and return its sequence.

        Above the bound the older half of the fingerprints loses every second one.

        Raises:
            StoreError: it could not be stored.
        """
        body = reported_fingerprint(fingerprint, purpose, domain)
        with self._writing() as database:
            sequence = _add(database, "fingerprint", fingerprint.id, body)
            self.thinned += _thin(database, self._most_bytes)
        return sequence

    def add_run(self, run: Run, assignment_id: str = "", campaign: str = "") -> int:
        """Store a run, and with a ``campaign`` the completion of its step, in one transaction.

        Raises:
            DuplicateError: it is already here.
            StoreError: it could not be stored.
        """
        body = reported_run(run, assignment_id)
        with self._writing() as database:
            sequence = _add(database, "run", run.id, body)
            _done(database, campaign, run.step)
        return sequence

    def add_signature(self, signature: Signature, campaign: str = "") -> int:
        """Store a signature, and with a ``campaign`` the completion of its step. Raises as
        ``add_run``."""
        body = reported_signature(signature)
        with self._writing() as database:
            sequence = _add(database, "signature", signature.id, body)
            _done(database, campaign, signature.step)
        return sequence

    # What goes out

    def oldest(self, limit: int = 64, most_bytes: int = 1 << 20) -> list[Entry]:
        """Return the next records in order: at least one, up to ``most_bytes`` as stored."""
        rows = self._read(
            "SELECT sequence, kind, id, CAST(body AS BLOB) FROM records ORDER BY sequence LIMIT ?",
            (limit,),
        )
        entries: list[Entry] = []
        size = 0
        for entry in (Entry(*row) for row in rows):
            size += len(entry.body)
            if entries and size > most_bytes:
                break
            entries.append(entry)
        return entries

    def delivered(self, ids: Iterable[str]) -> int:
        """Remove records that the server has committed; return how many were still here."""
        with self._writing() as database:
            gone = 0
            for id in ids:
                gone += database.execute("DELETE FROM records WHERE id = ?", (id,)).rowcount
        return gone

    def refused(self, ids: Iterable[str], reason: str) -> None:
        """Remove records that can never be delivered. Runs and signatures are put aside, not
        dropped.
        """
        with self._writing() as database:
            for id in ids:
                database.execute(
                    "INSERT OR REPLACE INTO refused SELECT id, kind, ?, ?, body FROM records "
                    "WHERE id = ? AND kind != 'fingerprint'",
                    (reason, time.time(), id),
                )
                database.execute("DELETE FROM records WHERE id = ?", (id,))

    def go_on_after(self, acknowledged: int) -> bool:
        """Renumber, if the server has seen higher sequences than this spool ever gave.

        That is so after the spool was lost or replaced: its numbers would look like repeats.
        Returns whether it was. A number that no spool can have given changes nothing.
        """
        if not 0 <= acknowledged <= MOST_SEQUENCE:
            _log.warning("the server acknowledged %d: it has no count so far", acknowledged)
            return False
        with self._writing() as database:
            row = database.execute("SELECT seq FROM sqlite_sequence WHERE name = 'records'")
            (highest,) = row.fetchone() or (0,)
            if acknowledged <= highest:
                return False
            rows = database.execute("SELECT sequence FROM records ORDER BY sequence DESC")
            for (sequence,) in rows.fetchall():
                database.execute(
                    "UPDATE records SET sequence = ? WHERE sequence = ?",
                    (sequence + acknowledged, sequence),
                )
            database.execute("DELETE FROM sqlite_sequence WHERE name = 'records'")
            database.execute(
                "INSERT INTO sqlite_sequence VALUES ('records', ?)", (highest + acknowledged,)
            )
        return True

    def counts(self) -> dict[str, int]:
        """Return the number of records in the spool, by kind."""
        counts = {"fingerprint": 0, "run": 0, "signature": 0}
        for kind, number in self._read("SELECT kind, count(*) FROM records GROUP BY kind"):
            counts[kind] = number
        return counts

    def bytes(self) -> int:
        """Return the bytes of the records in the spool."""
        ((total,),) = self._read(_SIZE)
        return int(total)

    # State that survives a restart

    def steps_done(self, campaign: str) -> frozenset[int]:
        """Return the steps of a campaign whose records were stored."""
        rows = self._read("SELECT step FROM steps WHERE campaign = ?", (campaign,))
        return frozenset(step for (step,) in rows)

    def forget_steps(self, campaign: str) -> None:
        with self._writing() as database:
            database.execute("DELETE FROM steps WHERE campaign = ?", (campaign,))

    def put(self, name: str, document: Any) -> None:
        """Store a JSON document under a name."""
        with self._writing() as database:
            database.execute(
                "INSERT OR REPLACE INTO kept VALUES (?, ?)",
                (name, json.dumps(document, separators=(",", ":"))),
            )

    def get(self, name: str) -> Any:
        """Return the document of that name, or None."""
        rows = self._read("SELECT document FROM kept WHERE name = ?", (name,))
        return json.loads(rows[0][0]) if rows else None

    def remove(self, name: str) -> None:
        with self._writing() as database:
            database.execute("DELETE FROM kept WHERE name = ?", (name,))


def _add(database: sqlite3.Connection, kind: Kind, id: str, body: bytes) -> int:
    cursor = database.execute(
        "INSERT INTO records (kind, id, body) VALUES (?, ?, ?)", (kind, id, body)
    )
    assert cursor.lastrowid is not None
    return cursor.lastrowid


def _done(database: sqlite3.Connection, campaign: str, step: int) -> None:
    if campaign and step >= 0:
        database.execute("INSERT OR IGNORE INTO steps VALUES (?, ?)", (campaign, step))


def _thin(database: sqlite3.Connection, most_bytes: int) -> int:
    """Drop every second of the older half of the fingerprints, until the rest fits."""
    dropped = 0
    while True:
        ((total,),) = database.execute(_SIZE).fetchall()
        if total <= most_bytes:
            return dropped
        rows = database.execute(
            "SELECT sequence FROM records WHERE kind = 'fingerprint' ORDER BY sequence"
        ).fetchall()
        if len(rows) < 2:
            # Only runs and the newest fingerprint are left.
            return dropped
        # The first one stays: it shows the node at the time when the server stopped answering.
        for (sequence,) in rows[1 : len(rows) // 2 : 2] or rows[:1]:
            database.execute("DELETE FROM records WHERE sequence = ?", (sequence,))
            dropped += 1
