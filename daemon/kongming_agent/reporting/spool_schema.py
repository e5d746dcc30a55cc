"""The tables of the spool's SQLite file, their version, and the upgrade of older ones.

A row's ``body`` holds the bytes of the message that delivers it, without its sequence number:
``ReportedFingerprint``, ``ReportedRun`` or ``Signature``. Version 1 held the record's JSON form,
compressed, and what belongs to its delivery in columns of their own.
"""

from __future__ import annotations

import json
import os
import sqlite3
import time
import zlib
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from kongming.records.errors import IncompatibleError, InputError
from kongming.records.fingerprint import Fingerprint
from kongming.records.run import Run, Signature
from kongming_agent.reporting.delivery import reported_fingerprint, reported_run, reported_signature

VERSION = 2

_PATIENCE_S = 30.0

_RECORDS = """
CREATE TABLE records (
    sequence INTEGER PRIMARY KEY AUTOINCREMENT,
    kind TEXT NOT NULL,
    id TEXT NOT NULL UNIQUE,
    body BLOB NOT NULL
)
"""
_OTHERS = """
CREATE TABLE refused (
    id TEXT PRIMARY KEY,
    kind TEXT NOT NULL,
    reason TEXT NOT NULL,
    refused_at REAL NOT NULL,
    body BLOB NOT NULL
);
CREATE TABLE steps (campaign TEXT, step INTEGER, PRIMARY KEY (campaign, step)) WITHOUT ROWID;
CREATE TABLE kept (name TEXT PRIMARY KEY, document TEXT NOT NULL) WITHOUT ROWID
"""


def open_file(path: Path) -> sqlite3.Connection:
    """Open the file with the newest tables: created if missing, upgraded if older.

    Raises:
        IncompatibleError: a newer agent wrote it.
        sqlite3.DatabaseError: it cannot be opened, or is damaged.
    """
    with suppress(OSError):
        # What is measured tells of users and their programs. The files that SQLite adds have the
        # mode of this one; that of a file which is there is its owner's choice.
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    database = sqlite3.connect(
        path, timeout=_PATIENCE_S, check_same_thread=False, isolation_level=None
    )
    try:
        database.execute("PRAGMA journal_mode = WAL")
        database.execute("PRAGMA synchronous = FULL")
        database.execute("PRAGMA journal_size_limit = 1048576")
        # Else a page that cannot be read is found when what lies behind it cannot be delivered.
        (result,) = database.execute("PRAGMA quick_check(1)").fetchone()
        if result != "ok":
            raise sqlite3.DatabaseError(result)
        database.execute("BEGIN IMMEDIATE")
        (version,) = database.execute("PRAGMA user_version").fetchone()
        if version > VERSION:
            raise IncompatibleError(
                f"The spool {path} has version {version}; this agent reads up to {VERSION}.",
                hint="Start the newer agent, or set files.state to another folder.",
            )
        if version == 0:
            for statement in (_RECORDS, *_OTHERS.split(";\n")):
                database.execute(statement)
        elif version == 1:
            _upgrade_from_1(database)
        database.execute(f"PRAGMA user_version = {VERSION}")
        database.execute("COMMIT")
    except UnicodeDecodeError as error:
        # SQLite quotes what it could not read.
        database.close()
        raise sqlite3.DatabaseError(f"its tables are unreadable: {error}") from error
    except BaseException:
        database.close()
        raise
    return database


def _upgrade_from_1(database: sqlite3.Connection) -> None:
    """Convert documents to messages. A row that cannot be converted is put aside, not lost."""
    columns = {row[1] for row in database.execute("PRAGMA table_info(records)")}
    assignment = "placement_id" if "placement_id" in columns else "assignment_id"
    seen = database.execute("SELECT seq FROM sqlite_sequence WHERE name = 'records'").fetchone()
    database.execute("ALTER TABLE records RENAME TO older_records")
    database.execute(_RECORDS)
    rows = database.execute(
        f"SELECT sequence, kind, id, purpose, domain, {assignment}, body FROM older_records "
        "ORDER BY sequence"
    )
    for sequence, kind, id, purpose, domain, assignment_id, body in rows:
        try:
            message = _message(kind, body, purpose, domain, assignment_id)
        except (InputError, ValueError, zlib.error) as error:
            database.execute(
                "INSERT OR REPLACE INTO refused VALUES (?, ?, ?, ?, ?)",
                (id, kind, f"It could not be upgraded: {error}", time.time(), body),
            )
            continue
        database.execute("INSERT INTO records VALUES (?, ?, ?, ?)", (sequence, kind, id, message))
    database.execute("DROP TABLE older_records")
    for id, kind, body in database.execute("SELECT id, kind, body FROM refused").fetchall():
        try:
            message = _message(kind, body, "live", 0, "")
        except (InputError, ValueError, zlib.error):
            continue
        database.execute("UPDATE refused SET body = ? WHERE id = ?", (message, id))
    if seen is not None:
        # Sequence numbers are never reused, including those of delivered records.
        database.execute("DELETE FROM sqlite_sequence WHERE name = 'records'")
        database.execute("INSERT INTO sqlite_sequence VALUES ('records', ?)", seen)


def _message(kind: str, body: bytes, purpose: str, domain: int, assignment_id: str) -> bytes:
    document: Mapping[str, Any] = json.loads(zlib.decompress(body))
    builders: dict[str, Callable[[], bytes]] = {
        "fingerprint": lambda: reported_fingerprint(
            Fingerprint.from_dict(document), purpose, domain
        ),
        "run": lambda: reported_run(Run.from_dict(document), assignment_id),
        "signature": lambda: reported_signature(Signature.from_dict(document)),
    }
    if kind not in builders:
        raise InputError("is unknown.", field="kind", value=kind)
    return builders[kind]()
