"""Failures of a database, as errors of ours."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager

import sqlalchemy as sa
from sqlalchemy import exc

from kongming.records.errors import InputError, KongmingError, StoreError
from kongming.store.urls import without_passwords

__all__ = ["NotAStoreError", "translated"]


class NotAStoreError(StoreError):
    """The file that was named as the store is empty, not a database, or of another program: wrong
    input of who named it. Who asks a server named none, and gets a StoreError."""

    exit_status = 2


@contextmanager
def translated(url: sa.URL) -> Iterator[None]:
    """Translate database errors into one-sentence KONGMING errors."""
    try:
        yield
    except KongmingError:
        raise
    except exc.StatementError as error:
        # The serializer rejects JSON documents that contain NaN.
        if isinstance(error.orig, ValueError):
            raise InputError(f"A record cannot be kept: {error.orig}.") from error
        if isinstance(error.orig, TypeError):
            raise
        if _is_about_content(error):
            raise InputError(f"A record cannot be kept: {_first_line(str(error.orig))}.") from error
        raise _store_error(url, error) from error
    except exc.SQLAlchemyError as error:
        raise _store_error(url, error) from error


def _is_about_content(error: exc.StatementError) -> bool:
    """Return whether the same statement would always fail, for what it is to write."""
    if isinstance(error, exc.DataError | exc.IntegrityError):
        return True
    # Classes of PostgreSQL: data, constraints, and limits such as the size of an index's row.
    return str(getattr(error.orig, "sqlstate", None) or "")[:2] in ("22", "23", "54")


_RETRY = "Try again in a moment."
_LOST = ("ended the connection.", _RETRY)
_FULL = ("cannot grow: the disk is full.", "Free some space.")
_BROKEN = ("cannot be read or written ({}).", "Check the disk, and the log of the system.")
_NO_RIGHTS = ("does not let this user work on it ({}).", "Grant its user the tables.")
_NO_TABLE = ("lacks a table ({}).", "Restore it from a copy, or name another with --store.")
_IN_USE = ("is in use by another process.", "Try again when that has ended.")

_SQLITE = {
    sqlite3.SQLITE_NOTADB: (
        "is not a database.",
        "Name another file with --store or KONGMING_STORE.",
    ),
    sqlite3.SQLITE_CORRUPT: ("is damaged ({}).", "Restore it from a copy or an export."),
    sqlite3.SQLITE_CANTOPEN: (
        "cannot be opened.",
        "Check that the folder exists and is writable.",
    ),
    sqlite3.SQLITE_READONLY: (
        "cannot be written.",
        "Check the permissions of the file and of its folder.",
    ),
    sqlite3.SQLITE_BUSY: _IN_USE,
    sqlite3.SQLITE_LOCKED: _IN_USE,
    sqlite3.SQLITE_FULL: _FULL,
    sqlite3.SQLITE_IOERR: _BROKEN,
    sqlite3.SQLITE_PERM: _NO_RIGHTS,
}
"""By the lowest byte of a code; the others say in which way it failed."""

_POSTGRES = {
    "25006": ("cannot be written ({}).", "Name the primary server, and not a standby, in the URL."),
    "42501": _NO_RIGHTS,
    "42P01": _NO_TABLE,
    "53100": _FULL,
    "53200": ("has no memory left ({}).", _RETRY),
    "53300": ("has too many clients.", _RETRY),
    "55P03": ("is locked by another program for too long.", "See pg_locks for which."),
    "57014": ("did not answer in time.", _RETRY),
    "57P01": _LOST,
    "57P02": _LOST,
    "57P03": _LOST,
    "58030": _BROKEN,
    "XX001": ("is damaged ({}).", "Restore it from a copy or an export."),
    "XX002": ("is damaged ({}).", "Restore it from a copy or an export."),
}
"""By SQLSTATE (PostgreSQL, appendix A): its messages are in the language of the server. psycopg
tells it of what fails on a connection, and not where connecting itself fails."""


def _cause(error: exc.SQLAlchemyError) -> tuple[str, str] | None:
    """Return what is wrong with the store as a whole and the way out, where it is known."""
    if isinstance(error, exc.TimeoutError):
        return "has no free connection.", "Send fewer requests at a time."
    if not isinstance(error, exc.DBAPIError):
        return None
    if isinstance(error.orig, sqlite3.Error):
        return _SQLITE.get(getattr(error.orig, "sqlite_errorcode", 0) & 0xFF)
    state = getattr(error.orig, "sqlstate", None)
    if state is not None:
        return _LOST if state[:2] == "08" else _POSTGRES.get(state)
    if error.connection_invalidated:
        return _LOST
    if isinstance(error, exc.OperationalError):
        # It may be starting, have too many clients, or be away.
        return "cannot be reached ({}).", (
            "Try again in a moment, or check that the server runs, and the URL."
        )
    return None


def _store_error(url: sa.URL, error: exc.SQLAlchemyError) -> StoreError:
    where = url.database if url.get_backend_name() == "sqlite" else without_passwords(url)
    line = _first_line(str(error.orig if isinstance(error, exc.StatementError) else error))
    cause = _cause(error)
    if cause is None:
        return StoreError(f"The store {where} failed: {line}.")
    sentence, hint = cause
    kind = NotAStoreError if cause is _SQLITE[sqlite3.SQLITE_NOTADB] else StoreError
    return kind(f"The store {where} {sentence.format(line)}", hint=hint, away=True)


def _first_line(text: str) -> str:
    return text.strip().splitlines()[0].rstrip(".") if text.strip() else "no reason given"
