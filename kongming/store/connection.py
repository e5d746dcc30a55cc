"""Database connection of the store: URL, transactions and schema migration."""

from __future__ import annotations

import json
import os
import re
import sqlite3
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Self, TypeVar

import sqlalchemy as sa
from sqlalchemy import event, exc

from kongming.missing_file import did_you_mean
from kongming.records.errors import InputError, KongmingError, StoreError
from kongming.settings import url_in_file
from kongming.store import column_types, read_only
from kongming.store.bounded_waiting import GRACE_S, BoundedWaiting
from kongming.store.failures import NotAStoreError, translated
from kongming.store.schema import HEAD, VERSION_TABLE
from kongming.store.store_file import StoreFile, refuse_special_file, sqlite_path, stays_empty
from kongming.store.store_shape import refuse_computed, refuse_incomplete

BUSY_TIMEOUT_S = 30.0
"""Time in seconds that a writer waits for another writer's lock."""

MIGRATION_LOCK = 4_716_533_890
"""Key of PostgreSQL's advisory lock for creating or migrating tables; any fixed number works."""

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

URL_FORMS = "sqlite:///relative/file.db, sqlite:////absolute/file.db or postgresql://host/name"


Damage = Callable[[str, str], None]
"""Called with what cannot be read, such as ``a node``, and why."""

NOT_READABLE = (KongmingError, ValueError, TypeError, KeyError, AttributeError, OverflowError)
"""What decoding a damaged row may raise."""

_Row = TypeVar("_Row")
_Record = TypeVar("_Record")


def default_url() -> str:
    """Return ``KONGMING_STORE``, else the URL in the file that ``KONGMING_STORE_FILE`` names, else
    the URL of a SQLite file in the XDG data folder.

    Raises:
        InputError: that file cannot be read.
    """
    url = os.environ.get("KONGMING_STORE")
    if url:
        return url
    file = os.environ.get("KONGMING_STORE_FILE")
    if file:
        return url_in_file(Path(file))
    return _own_url()


def _own_url() -> str:
    """Return the URL of the SQLite file in the XDG data folder."""
    data = os.environ.get("XDG_DATA_HOME")
    folder = Path(data) if data else Path.home() / ".local" / "share"
    return f"sqlite:///{folder / 'kongming' / 'kongming.db'}"


class Connection:
    """Open database with transactions; independent of the record types."""

    def __init__(self, engine: sa.Engine, url: str) -> None:
        self._engine = engine
        self.url = url
        self.origin = uuid.uuid4().hex
        """Unique id of this connection; changes written through it carry it."""
        self.is_new = False
        """Whether the tables were made when it was opened."""
        self._refusal: InputError | None = None
        self._handles: list[int] = []
        self._file: StoreFile | None = None
        self.damage: Damage | None = None
        """Rows that cannot be decoded are left out and told to this; without it, an error."""

    @classmethod
    def open(
        cls,
        url: str | None = None,
        *,
        create: bool = True,
        write: bool | None = None,
        statement_s: float = 0.0,
        lock_s: float = 0.0,
    ) -> Self:
        """Open or create the store at ``url`` (None: ``default_url()``); migrate an older one.

        Without ``create`` no SQLite file is made, nor one of 0 bytes filled, for commands that only
        read: the user's own one, which nobody named, is then an empty store in memory. PostgreSQL
        ends a statement that takes longer than ``statement_s``, or waits for a lock for longer than
        ``lock_s``; 0 for never. Where it does not even do that, the connection ends ``GRACE_S``
        later.
        ``write`` (None: as ``create``) says whether it will be written to: a SQLite file that may
        only be read, or whose URL has ``mode=ro``, is opened without, and refused with it.

        Raises:
            InputError: the URL is not valid, its file is missing and is not to be created, or it
                may only be read and is to be written.
            IncompatibleError: the store was written by a newer KONGMING.
            StoreError: it cannot be opened.
            NotAStoreError: it is not a store.
        """
        store_url, by_mode = _without_mode(url or default_url())
        shown = None
        missing = _missing_file(store_url)
        if missing is not None and (by_mode or not create):
            if store_url != _own_url():
                raise _no_such_file(missing)
            shown, store_url = store_url, "sqlite://"
        file = _file(store_url)
        if file is not None and not create and stays_empty(file):
            # Tables in it would hide from the server, which looks for this too, that it was lost.
            raise NotAStoreError(
                f"The store {file} is there and empty: what was in it is lost.",
                hint="Restore it from a copy, or name another file with --store or KONGMING_STORE.",
            )
        refusal = None
        if file is not None and file.is_file() and (by_mode or not read_only.may_write(file)):
            refusal = read_only.refusal(file, by_mode=by_mode)
            if create if write is None else write:
                raise refusal
        engine = _engine(store_url, None if refusal is None else file)
        bound = None
        if engine.dialect.name == "postgresql":
            _limit_waiting(engine, statement_timeout=statement_s, lock_timeout=lock_s)
            if statement_s:
                bound = BoundedWaiting(engine)
        try:
            with translated(engine.url):
                is_new = _migrate_if_needed(engine, may_write=refusal is None)
        except BaseException:
            engine.dispose()
            raise
        store = cls(engine, shown or engine.url.render_as_string(hide_password=True))
        store.is_new = is_new
        if bound is not None:
            bound.silent_s = statement_s + GRACE_S
        store._refusal = refusal
        if file is not None and refusal is None:
            store._file = StoreFile(file)
            store._file.watch(engine)
        return store

    def close(self) -> None:
        self._engine.dispose()
        while self._handles:
            os.close(self._handles.pop())

    def hold(self, handle: int) -> None:
        """Close this file together with the store."""
        self._handles.append(handle)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _each(
        self, what: str, rows: Iterable[_Row], decode: Callable[[_Row], _Record]
    ) -> Iterator[_Record]:
        """Decode rows one by one: one that is damaged does not keep the others from being read,
        where ``damage`` says whom to tell.

        Raises:
            StoreError: a row cannot be decoded, and nobody is told.
            IncompatibleError: likewise, and it was written by a newer KONGMING.
        """
        for row in rows:
            try:
                record = decode(row)
            except NOT_READABLE as error:
                reason = str(error) if isinstance(error, KongmingError) else repr(error)
                if self.damage is not None:
                    self.damage(what, reason)
                elif isinstance(error, KongmingError):
                    raise
                else:
                    raise StoreError(
                        f"The store has {what} that cannot be read: {reason}.",
                        hint="Restore it from a copy or an export.",
                    ) from error
            else:
                yield record

    @contextmanager
    def _reading(self) -> Iterator[sa.Connection]:
        try:
            with translated(self._engine.url), self._engine.connect() as connection:
                yield connection
        except (ValueError, TypeError, AttributeError) as error:
            # A value of another type than its column has, which is read outside of ``_each``.
            raise StoreError(
                f"The store {self.url} has a value that cannot be read: {error!r}.",
                hint="Restore it from a copy or an export.",
            ) from error

    @contextmanager
    def _writing(self) -> Iterator[sa.Connection]:
        """Write transaction; committed, durable and in the named file when the block is left."""
        if self._refusal is not None:
            raise self._refusal
        try:
            if self._file is not None:
                self._file.check()
            with translated(self._engine.url), self._engine.connect() as connection:
                with _write_transaction(connection):
                    yield connection
                if self._file is not None:
                    # A commit to a file that is gone succeeds as well.
                    self._file.check_commit(connection)
        except (ValueError, OverflowError) as error:
            # NaN in a document, where the driver encodes JSON after SQLAlchemy's checks, or a
            # number that is too large for a column.
            raise InputError(f"A record cannot be kept: {error}.") from error


@contextmanager
def _write_transaction(connection: sa.Connection) -> Iterator[sa.Connection]:
    connection = connection.execution_options(kongming_write=True)
    with connection.begin():
        yield connection


def _engine(store_url: str, only_read: Path | None = None) -> sa.Engine:
    """``only_read`` is the SQLite file, where it may only be read."""
    try:
        url = sa.make_url(store_url)
    except (exc.ArgumentError, ValueError) as error:
        raise InputError(
            "is not a database URL.",
            field="store",
            value=re.sub("//[^/]*@", "//***@", store_url),
            allowed=URL_FORMS,
        ) from error
    if url.get_backend_name() == "sqlite":
        if url.host:
            raise InputError(
                "has too few slashes.", field="store", value=store_url, allowed="sqlite:///file.db"
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
    return InputError("is of an unknown kind.", field="store", value=str(url), allowed=URL_FORMS)


def shown_url(store_url: str | None) -> str:
    """Return the URL of a store (None: ``default_url()``) without its password."""
    try:
        return sa.make_url(store_url or default_url()).render_as_string(hide_password=True)
    except (exc.ArgumentError, ValueError):
        return re.sub("//[^/]*@", "//***@", store_url or "")


def _missing_file(store_url: str) -> Path | None:
    """Return the file of a SQLite store that does not exist; None for others."""
    path = _file(store_url)
    return None if path is None or path.exists() else path


def _file(store_url: str) -> Path | None:
    """Return the file of a SQLite store; None for others."""
    try:
        url = sa.make_url(store_url)
    except (exc.ArgumentError, ValueError):
        return None
    path = sqlite_path(url)
    if path is not None:
        refuse_special_file(path)
    return path


def _without_mode(store_url: str) -> tuple[str, bool]:
    """Return the URL without ``mode=ro``, and whether it had that."""
    try:
        url, by_mode = read_only.without_mode(sa.make_url(store_url))
    except (exc.ArgumentError, ValueError):
        return store_url, False
    return (url.render_as_string(hide_password=False) if by_mode else store_url), by_mode


def _no_such_file(path: Path) -> InputError:
    """Return the error for a store that a command only reads."""
    return InputError(
        f"The store {path} does not exist.",
        hint=did_you_mean(path) or "'kongming profile' and 'kongming import' create it.",
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
    """Let nobody but its owner read a file that SQLite is about to make. The mode of one that is
    there is its owner's choice."""
    if path.exists():
        return

    def hide(connection: object, record: object) -> None:
        # There is nothing in it yet; what SQLite adds to its folder later has the mode of the file.
        for file in (path, *read_only.files_beside(path)):
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


def _limit_waiting(engine: sa.Engine, **seconds: float) -> None:
    def limit(connection: Any, record: object) -> None:
        for name, longest_s in seconds.items():
            milliseconds = f"{round(1000 * longest_s)}ms"
            connection.execute("SELECT set_config(%s, %s, false)", (name, milliseconds))
        connection.commit()

    event.listen(engine, "connect", limit)


def _begin_sqlite(connection: sa.Connection) -> None:
    # Writers lock immediately: upgrading a read lock fails instead of waiting.
    write = connection.get_execution_options().get("kongming_write", False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if write else "BEGIN")


def _migrate_if_needed(engine: sa.Engine, *, may_write: bool) -> bool:
    """Whether there were no tables before."""
    sqlite = engine.dialect.name == "sqlite"
    with engine.connect() as connection:
        if sqlite:
            refuse_computed(connection)
        revision = _revision(connection)
        if revision == HEAD:
            if sqlite:
                refuse_incomplete(connection)
            return False
    if not may_write:
        if revision is not None:
            from kongming.store.migrations import refuse_newer

            refuse_newer(revision)
        raise read_only.refuse_old(str(engine.url.database), revision)
    # Check again while holding the lock: another process may have migrated meanwhile.
    with engine.connect() as free, _write_transaction(free) as connection:
        if engine.dialect.name == "postgresql":
            # However long that takes, and whatever another process is doing meanwhile.
            connection.exec_driver_sql("SET LOCAL statement_timeout = 0")
            connection.exec_driver_sql("SET LOCAL lock_timeout = 0")
            connection.execute(sa.select(sa.func.pg_advisory_xact_lock(MIGRATION_LOCK)))
        revision = _revision(connection)
        if revision != HEAD:
            if revision is None and sqlite:
                _refuse_foreign(connection)
            from kongming.store.migrations import migrate

            migrate(connection, revision)
        if sqlite:
            # Of an older store this can only be told now; what is refused stays as it was.
            refuse_incomplete(connection)
        return revision is None


def _revision(connection: sa.Connection) -> str | None:
    """Return the schema revision of the tables, None for a new store."""
    if not sa.inspect(connection).has_table(VERSION_TABLE):
        return None
    version: str | None = connection.scalar(sa.text(f"SELECT version_num FROM {VERSION_TABLE}"))
    return version


def _refuse_foreign(connection: sa.Connection) -> None:
    tables = sa.inspect(connection).get_table_names()
    if tables:
        raise NotAStoreError(
            f"The database {connection.engine.url.database} belongs to another program "
            f"(it has a table {tables[0]!r}).",
            hint="Name another file with --store or KONGMING_STORE.",
        )
