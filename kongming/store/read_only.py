"""SQLite files that may only be read: which those are, and how to open them without writing.

SQLite keeps what was written last in a file next to the database (``-wal``), and an index of it in
another (``-shm``). A reader makes them where they are missing: that fails in a folder that it may
not write, and elsewhere leaves files of its own behind, which then keep the owner from writing.
"""

from __future__ import annotations

import os
import sqlite3
import urllib.parse
from collections.abc import Callable
from pathlib import Path

import sqlalchemy as sa

from kongming.records.errors import InputError, StoreError

MODE = "ro"
"""The value of ``?mode=`` in the URL of a store that is only to be read."""


def without_mode(url: sa.URL) -> tuple[sa.URL, bool]:
    """Take ``mode=ro`` out of a SQLite URL; return the rest, and whether it was there.

    ``sqlite:///file.db?mode=ro`` and SQLite's own form,
    ``sqlite:///file:file.db?mode=ro&uri=true``.

    Raises:
        InputError: another mode.
    """
    database = str(url.database or "")
    modes = url.query.get("mode", ()) if url.get_backend_name() == "sqlite" else ()
    if not modes:
        return url, False
    if modes != MODE:
        raise InputError(
            "is not a mode of a store.", field="mode", value=str(modes), allowed=f"mode={MODE}"
        )
    if database.startswith("file:"):
        database = urllib.parse.unquote(database.removeprefix("file:"))
    query = {key: value for key, value in url.query.items() if key not in ("mode", "uri")}
    return url.set(database=database, query=query), True


def may_write(path: Path) -> bool:
    """Return whether this user may change the database in a file that is there."""
    if not _allowed(path):
        return False
    side = side_files(path)
    return all(map(_allowed, side if all(file.exists() for file in side) else [side[0].parent]))


def side_files(path: Path) -> tuple[Path, Path]:
    """Return the log of a database and the index of that: SQLite follows links before it names
    them."""
    real = path.resolve()
    return real.with_name(f"{real.name}-wal"), real.with_name(f"{real.name}-shm")


def _allowed(path: Path) -> bool:
    # Of the user that it runs as, as opening it does.
    return os.access(path, os.W_OK, effective_ids=os.access in os.supports_effective_ids)


def refusal(path: Path, *, by_mode: bool) -> InputError:
    """Return the error of a command that writes, for a store that may only be read."""
    if by_mode:
        return InputError(
            f"is opened with mode={MODE}, and this changes it.",
            field="store",
            value=str(path),
            hint=f"Leave out mode={MODE}, or name another store with --store or KONGMING_STORE.",
        )
    return InputError(
        "may only be read by this user, and this changes it.",
        field="store",
        value=str(path),
        hint="Let the user write the file and its folder, or name another store with --store or "
        "KONGMING_STORE; 'kongming export' and 'kongming import' copy runs.",
    )


def connector(path: Path) -> Callable[[], sqlite3.Connection]:
    """Return what opens the file for reading alone, and makes no file.

    Without a ``-wal`` no process has the database open, and it is read as one that does not change:
    a writer who comes during that time may make a query fail, but nothing wrong is kept anywhere.

    Raises:
        StoreError: a part of it is in a ``-wal`` that cannot be read without writing.
    """
    log, index = side_files(path)
    unread = log.exists() and log.stat().st_size > 0
    if unread and not index.exists():
        raise StoreError(
            f"The store {path} was not closed in good order: what was written last is in "
            f"{log.name}, which cannot be read without writing.",
            hint="Open it once where it may be written: kongming apps --store URL",
        )
    # An index alone is of no use to SQLite, which would have to make the log.
    in_use = log.exists() and index.exists()
    options = f"mode={MODE}" if in_use else f"mode={MODE}&immutable=1"
    uri = f"file:{urllib.parse.quote(str(path.absolute()))}?{options}"
    # SQLAlchemy's pool hands a connection to one thread at a time.
    return lambda: sqlite3.connect(uri, uri=True, check_same_thread=False)


def refuse_old(name: str, revision: str | None, *, may_write: bool) -> StoreError:
    """Return the error for tables that would have to be made, or upgraded, first: in a file that
    may only be read, or else by what is to change nothing."""
    why = "is not to be changed now" if may_write else "may only be read"
    if revision is None:
        return StoreError(
            f"The store {name} has no tables, and {why}.",
            hint="Name another one with --store or KONGMING_STORE.",
        )
    where = "" if may_write else " where it may be written"
    return StoreError(
        f"The store {name} was made by an earlier version and has to be upgraded, but it {why}.",
        hint=f"Open it once{where} (kongming apps --store URL), or a copy of it.",
    )
