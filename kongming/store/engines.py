"""Database engines of stores: SQLite files and PostgreSQL, each with the settings it needs."""

from __future__ import annotations

import json
import sqlite3
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy import event, exc

from kongming.records.errors import InputError, StoreError
from kongming.store import column_types, read_only
from kongming.store.store_file import refuse_special_file
from kongming.store.urls import URL_FORMS, default_url, shown_url, without_passwords

BUSY_TIMEOUT_S = 30.0
"""Time in seconds that a writer waits for another writer's lock."""

_POSTGRESQL_OPTIONS: dict[str, Any] = {
    # Replace connections that were closed by the server instead of failing their next use.
    "pool_pre_ping": True,
    "pool_size": 8,
    "max_overflow": 8,
    "pool_timeout": 30.0,
    "pool_recycle": 1800,
    "connect_args": {
        "application_name": "kongming",
        "connect_timeout": 5,
        # Detect a server that disappeared without closing the connection within 30 s.
        "keepalives_idle": 10,
        "keepalives_interval": 5,
        "keepalives_count": 3,
        "tcp_user_timeout": 30_000,
    },
}

_AS_JSON = json.JSONEncoder(allow_nan=False, separators=(",", ":"))


def open_engine(store_url: str, only_read: Path | None = None) -> sa.Engine:
    """Return an engine for the store at this URL, which does not connect yet.

    ``only_read`` is the SQLite file, where it may only be read.

    Raises:
        InputError: the URL is not valid, or of a kind of database that cannot be a store.
        StoreError: the folder of the user's own store cannot be created.
    """
    try:
        url = sa.make_url(store_url)
    except (exc.ArgumentError, ValueError) as error:
        raise InputError(
            "is not a database URL.",
            field="store",
            value=shown_url(store_url),
            allowed=URL_FORMS,
        ) from error
    if "@" in (url.host or ""):
        raise InputError(
            "has an @ too many.",
            field="store",
            value=shown_url(store_url),
            allowed=URL_FORMS,
            hint="In a password it is written %40.",
        )
    if url.get_backend_name() == "sqlite":
        if url.host:
            raise InputError(
                "has too few slashes.",
                field="store",
                value=shown_url(store_url),
                allowed="sqlite:///file.db",
            )
        url = _with_folder(url, is_default=store_url == default_url())
    elif url.get_backend_name() not in ("postgresql", "postgres"):
        raise _unknown_kind(url)
    options: dict[str, Any] = {}
    if only_read is not None:
        options["creator"] = read_only.connector(only_read)
    if url.get_backend_name() in ("postgresql", "postgres"):
        if url.drivername in ("postgresql", "postgres"):
            url = url.set(drivername="postgresql+psycopg")
        options = _POSTGRESQL_OPTIONS
    try:
        engine = sa.create_engine(
            url,
            **options,
            # NaN is neither valid JSON nor a measurement.
            json_serializer=_AS_JSON.encode,
            json_deserializer=_document,
        )
    except exc.NoSuchModuleError as error:
        raise _unknown_kind(url) from error
    except ModuleNotFoundError as error:
        raise InputError(
            f"needs the Python module {error.name}, which is not installed.",
            field="store",
            value=url.drivername,
            hint=f"Install it with: pip install {error.name}",
        ) from error
    if url.get_backend_name() == "sqlite":
        prepare = _prepare_sqlite if only_read is None else _prepare_reading
        event.listen(engine, "connect", prepare)
        event.listen(engine, "begin", _begin_sqlite)
        if url.database not in (None, "", ":memory:"):
            _keep_private(engine, Path(str(url.database)))
    return engine


def _unknown_kind(url: sa.URL) -> InputError:
    return InputError(
        "is of an unknown kind.", field="store", value=without_passwords(url), allowed=URL_FORMS
    )


def _document(text: str) -> Any:
    """Parse a column of JSON. What is none becomes None, which no record decodes from: an error
    here would end the query, and take all other rows with it."""
    if isinstance(text, str) and not text.isascii() and "\N{REPLACEMENT CHARACTER}" in text:
        # We write ASCII alone: it is damaged, and something else may stand there now.
        return None
    try:
        return json.loads(text)
    except (ValueError, TypeError, RecursionError):
        return None


def _with_folder(url: sa.URL, *, is_default: bool) -> sa.URL:
    if url.database in (None, "", ":memory:"):
        return url
    path = Path(str(url.database)).expanduser()
    refuse_special_file(path)
    if path.is_dir():
        raise InputError("is a folder.", field="store", value=str(path), hint="Name a file in it.")
    try:
        if is_default:
            # What is measured tells of users and their programs: others read it by being let in.
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        elif not path.parent.is_dir():
            raise InputError(
                "is in a folder that does not exist.",
                field="store",
                value=str(path),
                hint="Create the folder first.",
            )
    except OSError as error:
        raise StoreError(
            f"The folder of the store {path} cannot be created: {error.strerror}.",
            hint="Name another path with --store or KONGMING_STORE.",
        ) from error
    return url.set(database=str(path))


def _keep_private(engine: sa.Engine, path: Path) -> None:
    """Let only its owner read a file that SQLite is about to make. The mode of one that is
    there is its owner's choice."""
    if path.exists():
        return

    def hide(connection: object, record: object) -> None:
        # There is nothing in it yet; what SQLite adds to its folder later has the mode of the file.
        for file in (path, *read_only.side_files(path)):
            with suppress(OSError):
                file.chmod(0o600)

    event.listen(engine, "connect", hide, once=True)


def _prepare_sqlite(connection: Any, record: object) -> None:
    _prepare_each(connection)
    cursor = connection.cursor()
    cursor.execute("PRAGMA foreign_keys = ON")
    _use_write_ahead_log(cursor)
    # In WAL mode, synchronous = NORMAL may lose the last commits on a power failure.
    cursor.execute("PRAGMA synchronous = FULL")
    cursor.close()


def _prepare_reading(connection: Any, record: object) -> None:
    _prepare_each(connection)
    connection.execute("PRAGMA query_only = ON")


def _prepare_each(connection: Any) -> None:
    # SQLAlchemy begins transactions, not the driver: the driver's deferred BEGIN lets two
    # writers read the same state before either holds the lock.
    connection.isolation_level = None
    connection.text_factory = column_types.text
    connection.execute(f"PRAGMA busy_timeout = {int(1000 * BUSY_TIMEOUT_S)}")
    # What is in the file runs no function that reaches outside of it.
    connection.execute("PRAGMA trusted_schema = OFF")
    connection.execute("PRAGMA cell_size_check = ON")


def _use_write_ahead_log(cursor: Any) -> None:
    """Switch to WAL mode, with retries: it needs exclusive access and ignores busy_timeout."""
    deadline = time.monotonic() + BUSY_TIMEOUT_S
    while True:
        try:
            cursor.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as error:
            # The lowest byte of a code says what failed, the others in which way.
            busy = error.sqlite_errorcode & 0xFF == sqlite3.SQLITE_BUSY
            if not busy or time.monotonic() > deadline:
                raise
            time.sleep(0.02)


def _begin_sqlite(connection: sa.Connection) -> None:
    # Writers lock immediately: upgrading a read lock fails instead of waiting.
    write = connection.get_execution_options().get("kongming_write", False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if write else "BEGIN")


def limit_waiting(engine: sa.Engine, **seconds: float) -> None:
    """Have PostgreSQL end what takes longer: ``statement_timeout`` and the like, 0 for never."""

    def limit(connection: Any, record: object) -> None:
        for name, longest_s in seconds.items():
            milliseconds = f"{round(1000 * longest_s)}ms"
            connection.execute("SELECT set_config(%s, %s, false)", (name, milliseconds))
        connection.commit()

    event.listen(engine, "connect", limit)
