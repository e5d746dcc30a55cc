"""What a database fails with, as errors of ours."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import sqlalchemy as sa
from sqlalchemy import exc

from kongming.records.errors import InputError, KongmingError, StoreError

__all__ = ["translated"]


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
        raise _store_error(url, str(error.orig)) from error
    except exc.SQLAlchemyError as error:
        raise _store_error(url, str(error)) from error


def _is_about_content(error: exc.StatementError) -> bool:
    """Whether the same statement would always fail, for what it is to write."""
    if isinstance(error, exc.DataError | exc.IntegrityError):
        return True
    # Classes of PostgreSQL: data, constraints, and limits such as the size of an index's row.
    return str(getattr(error.orig, "sqlstate", None) or "")[:2] in ("22", "23", "54")


_RETRY = "Try again in a moment."
_CAUSES = (
    ("not a database", "is not a database.", "Name another file with --store or KONGMING_STORE."),
    ("malformed", "is damaged ({}).", "Restore it from a copy or an export."),
    ("unable to open", "cannot be opened.", "Check that the folder exists and is writable."),
    ("readonly", "cannot be written.", "Check the permissions of the file and of its folder."),
    ("locked", "is in use by another process.", "Try again when that has ended."),
    ("full", "cannot grow: the disk is full.", "Free some space."),
    ("No space left", "cannot grow: the disk is full.", "Free some space."),
    ("shutting down", "is shutting down.", _RETRY),
    ("starting up", "is still starting.", _RETRY),
    ("connection failed", "cannot be reached ({}).", "Check that the server runs, and the URL."),
    ("terminating connection", "ended the connection.", _RETRY),
    ("server closed the connection", "ended the connection.", _RETRY),
    ("statement timeout", "did not answer in time.", _RETRY),
    ("lock timeout", "is locked by another program for too long.", "See pg_locks for which."),
    ("QueuePool limit", "has no free connection.", "Send fewer requests at a time."),
)


def _store_error(url: sa.URL, cause: str) -> StoreError:
    where = url.database if url.get_backend_name() == "sqlite" else url.render_as_string()
    line = _first_line(cause)
    for sign, sentence, hint in _CAUSES:
        if sign in line:
            return StoreError(f"The store {where} {sentence.format(line)}", hint=hint, away=True)
    return StoreError(f"The store {where} failed: {line}.")


def _first_line(text: str) -> str:
    return text.strip().splitlines()[0].rstrip(".") if text.strip() else "no reason given"
