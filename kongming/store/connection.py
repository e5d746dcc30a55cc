"""Database connection of the store: transactions and schema migration."""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Self, TypeVar

import sqlalchemy as sa

from kongming.records.errors import IncompatibleError, InputError, KongmingError, StoreError
from kongming.store import read_only
from kongming.store.bounded_waiting import GRACE_S, BoundedWaiting
from kongming.store.engines import limit_waiting, open_engine
from kongming.store.failures import NotAStoreError, translated
from kongming.store.schema import HEAD, VERSION_TABLE
from kongming.store.store_file import StoreFile, stays_empty
from kongming.store.store_shape import refuse_computed, refuse_incomplete
from kongming.store.urls import (
    default_url,
    missing_file,
    no_such_file,
    own_url,
    store_file_of,
    without_mode,
    without_passwords,
)

MIGRATION_LOCK = 4_716_533_890
"""Key of PostgreSQL's advisory lock for creating or migrating tables; any fixed number works."""

Damage = Callable[[str, str], None]
"""Called with what cannot be read, such as ``a node 'n1'``, and why."""

_IN_MEMORY = "sqlite://"

NOT_READABLE = (KongmingError, ValueError, TypeError, KeyError, AttributeError, OverflowError)
"""What decoding a damaged row may raise."""

_Row = TypeVar("_Row")
_Record = TypeVar("_Record")


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
        """Rows that cannot be decoded are left out and passed to this; without it, an error."""

    @classmethod
    def open(
        cls,
        url: str | None = None,
        *,
        create: bool = True,
        write: bool | None = None,
        upgrade: bool = True,
        statement_s: float = 0.0,
        lock_s: float = 0.0,
    ) -> Self:
        """Open or create the store at ``url`` (None: ``default_url()``); migrate an older one.

        Without ``create`` no SQLite file is made, nor one of 0 bytes filled, for commands that only
        read: the user's own one, which was not named, is then an empty store in memory. PostgreSQL
        ends a statement that takes longer than ``statement_s``, or waits for a lock for longer than
        ``lock_s``; 0 for never. Where it does not even do that, the connection ends ``GRACE_S``
        later.
        ``write`` (None: as ``create``) says whether it will be written to: a SQLite file that may
        only be read, or whose URL has ``mode=ro``, is opened without, and refused with it. Without
        ``upgrade`` a store without tables, or one of an earlier version, is refused as well, for
        what is to change nothing.

        Raises:
            InputError: the URL is not valid, its file is missing and is not to be created, or it
                may only be read and is to be written.
            IncompatibleError: the store was written by a newer KONGMING.
            StoreError: it cannot be opened, or not without being upgraded.
            NotAStoreError: it is not a store.
        """
        store_url, by_mode = without_mode(url or default_url())
        shown = None
        missing = missing_file(store_url)
        if missing is not None and (by_mode or not create):
            if store_url != own_url():
                raise no_such_file(missing)
            shown, store_url = store_url, _IN_MEMORY
        file = store_file_of(store_url)
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
        engine = open_engine(store_url, None if refusal is None else file)
        bound = None
        if engine.dialect.name == "postgresql":
            limit_waiting(engine, statement_timeout=statement_s, lock_timeout=lock_s)
            if statement_s:
                bound = BoundedWaiting(engine)
        try:
            with translated(engine.url):
                may_upgrade = refusal is None and (upgrade or store_url == _IN_MEMORY)
                is_new = _migrate_if_needed(engine, may_upgrade, may_write=refusal is None)
        except BaseException:
            engine.dispose()
            raise
        store = cls(engine, shown or without_passwords(engine.url))
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
        self,
        what: str,
        rows: Iterable[_Row],
        decode: Callable[[_Row], _Record],
        name: Callable[[_Row], object],
    ) -> Iterator[_Record]:
        """Decode rows one by one: one that is damaged does not keep the others from being read,
        where ``damage`` says whom to tell. ``what`` and ``name`` say which it is.

        Raises:
            StoreError: a row cannot be decoded, and no function for it was given.
            IncompatibleError: likewise, and it was written by a newer KONGMING.
        """
        for row in rows:
            try:
                record = decode(row)
            except NOT_READABLE as error:
                reason = str(error) if isinstance(error, KongmingError) else repr(error)
                named = f"{what} {str(name(row))!r}"
                if self.damage is not None:
                    self.damage(named, reason)
                elif isinstance(error, IncompatibleError):
                    raise IncompatibleError(
                        f"The store has {named} that cannot be read: {error.message}",
                        hint=error.hint,
                    ) from error
                else:
                    raise StoreError(
                        f"The store has {named} that cannot be read: {reason.rstrip('.')}.",
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


def _migrate_if_needed(engine: sa.Engine, may_upgrade: bool, *, may_write: bool) -> bool:
    """Return whether there were no tables before."""
    sqlite = engine.dialect.name == "sqlite"
    with engine.connect() as connection:
        if sqlite:
            refuse_computed(connection)
        revision = _revision(connection)
        if revision == HEAD:
            if sqlite:
                refuse_incomplete(connection)
            return False
    if not may_upgrade:
        if revision is not None:
            from kongming.store.migrations import refuse_newer

            refuse_newer(revision)
        raise read_only.refuse_old(str(engine.url.database), revision, may_write=may_write)
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
