"""Checks before a server trusts a store: that its file is whole, not a new one by
mistake, and not that of another server."""

from __future__ import annotations

import fcntl
import os
import sqlite3
import time
from contextlib import suppress
from pathlib import Path

import sqlalchemy as sa

from kongming.records.errors import StoreError
from kongming.store.connection import Connection
from kongming.store.failures import NotAStoreError
from kongming.store.store_file import sqlite_path, stays_empty

_STEPS = 10_000
"""Instructions of SQLite between two looks at the clock."""


def refuse_empty_file(url: str) -> None:
    """Check that ``url`` is not a SQLite file that is there and has 0 bytes.

    Such a file is what a full disk or a copy that failed leaves behind; a new store in its place
    would be without tokens, models and runs, and say nothing.

    Raises:
        NotAStoreError: it is.
    """
    try:
        parsed = sa.make_url(url)
    except (sa.exc.ArgumentError, ValueError):
        # Opening it says what is wrong.
        return
    path = sqlite_path(parsed)
    if path is None:
        return
    if stays_empty(path):
        raise NotAStoreError(
            f"The store {path} is there and empty: what was in it is lost.",
            hint="Restore it from a copy; or give --new-store to begin with nothing.",
        )


def serve_alone(store: Connection) -> None:
    """Be the only server of a SQLite file until the store is closed, however this process ends; of
    PostgreSQL there may be several.

    A server keeps in memory what only it writes. The lock is a file of its own: to close the
    database's file would release the locks that SQLite has on it.

    Raises:
        StoreError: another server has it, or may have it by another name.
    """
    named = sqlite_path(store._engine.url)
    if named is None:
        return
    file = named.resolve()
    if file.stat().st_nlink > 1:
        # SQLite's own log, and the lock below, belong to one name.
        raise StoreError(
            f"The store {file} has another name as well (a hard link), by which it may be in use.",
            hint="Keep one name: find the others with 'find -samefile', or copy the file.",
        )
    path = Path(f"{file}-server")
    try:
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except OSError:
        # Where no file can be made the store cannot be written either, which is said elsewhere.
        return
    if os.geteuid() == 0:
        # As SQLite does with its own files: a service of another user is to lock it later.
        with suppress(OSError):
            os.fchown(handle, file.stat().st_uid, file.stat().st_gid)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(handle)
        raise StoreError(
            f"Another kongming-server serves the store {named}.",
            hint="A SQLite file has one server. End the other one, name another --store, or use "
            "PostgreSQL for several.",
        ) from error
    store.hold(handle)


def check_file(store: Connection, budget_s: float) -> bool:
    """Check the structure of a SQLite file (PRAGMA quick_check) for ``budget_s`` at most.

    Returns whether all of it was looked at; True for PostgreSQL, which checks pages as it reads.

    Raises:
        StoreError: it is damaged; the message has the first finding.
    """
    if store._engine.dialect.name != "sqlite":
        return True
    deadline = time.monotonic() + budget_s
    with store._reading() as connection:
        raw = connection.connection.driver_connection
        assert isinstance(raw, sqlite3.Connection)
        raw.set_progress_handler(lambda: time.monotonic() >= deadline, _STEPS)
        try:
            finding = raw.execute("PRAGMA quick_check(1)").fetchone()
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode == sqlite3.SQLITE_INTERRUPT:
                return False
            raise StoreError(f"The store {store.url} cannot be checked: {error}.") from error
        except sqlite3.DatabaseError as error:
            raise _damaged(store, str(error)) from error
        finally:
            raw.set_progress_handler(None, 0)
    if finding is not None and finding[0] != "ok":
        raise _damaged(store, " ".join(str(finding[0]).split()))
    return True


def _damaged(store: Connection, finding: str) -> StoreError:
    return StoreError(
        f"The store {store.url} is damaged: {finding}.",
        hint="Restore it from a copy. What can be read of it: sqlite3 FILE .recover | sqlite3 NEW",
    )
