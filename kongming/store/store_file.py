"""Identity of a SQLite store's file: what is committed must be in the file that the path names."""

from __future__ import annotations

import stat
import time
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy import event

from kongming.records.errors import InputError, StoreError

__all__ = ["StoreFile", "refuse_special_file", "sqlite_path", "stays_empty"]

_WAY_OUT = "Put the file back; or restart what uses the store, to go on with what is there now."


def sqlite_path(url: sa.URL) -> Path | None:
    """Return the file of a SQLite store; None for one in memory, and for other databases."""
    if url.get_backend_name() != "sqlite" or url.database in (None, "", ":memory:"):
        return None
    return Path(str(url.database)).expanduser()


_APPEARS_S = 1.0
"""A file that is empty for so long is not one that another process is just making."""


def stays_empty(path: Path) -> bool:
    """Return whether ``path`` is a file of 0 bytes, as a full disk or a copy that failed leaves it,
    and not one that another process is just making."""
    deadline = time.monotonic() + _APPEARS_S
    while path.is_file() and path.stat().st_size == 0:
        if time.monotonic() >= deadline:
            return True
        time.sleep(0.05)
    return False


def refuse_special_file(path: Path) -> None:
    """Check that ``path`` is a regular file, a folder, a link to one, or does not exist.

    SQLite waits, reads for ever or fails obscurely on anything else, and creates files next to it.

    Raises:
        InputError: it is a pipe, a socket or a device, or cannot be looked at.
    """
    try:
        mode = path.stat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        # As under HOME=/dev/null; whoever makes it is told that the folder cannot be made.
        return
    except (OSError, ValueError) as error:
        # A link to itself, a name that is too long or has a NUL, a folder that may not be entered.
        raise InputError(
            f"cannot be opened ({getattr(error, 'strerror', None) or error}).",
            field="store",
            value=str(path)[:_SHOWN],
            hint="Name another file with --store or KONGMING_STORE.",
        ) from error
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
        raise InputError(
            "is a pipe, a socket or a device, and no file.",
            field="store",
            value=str(path),
            hint="Name a regular file.",
        )


_SHOWN = 200
"""Characters of a name that an error shows."""


class StoreFile:
    """File of an open SQLite store.

    A file that was deleted, moved or replaced stays open, and takes transactions that can never
    be read again; a connection that is opened again would read another one. Both end in an error,
    which goes away by itself where the file comes back.
    """

    def __init__(self, path: Path) -> None:
        # Programs that use a store may change their folder; SQLite keeps the file's.
        self._path = path.absolute()
        # SQLite follows links before it names the log.
        self._log = Path(f"{path.resolve()}-wal")
        self._has_log = False
        self._identity: tuple[int, int] | None = None

    def watch(self, engine: sa.Engine) -> None:
        """Check each new connection from now on. Called when a connection is open."""
        self._identity = self._current()
        # Not on a file system without shared memory.
        self._has_log = self._log.exists()
        event.listen(engine, "do_connect", self._before_connecting)

    def check(self) -> None:
        """Check that the path still names the file that is open.

        Raises:
            StoreError: the file was deleted, moved or replaced.
        """
        if self._identity is None:
            return
        current = self._current()
        if current is None:
            raise StoreError(
                f"The store {self._path} was deleted or moved while it is in use.",
                hint=_WAY_OUT,
                away=True,
            )
        if current != self._identity:
            raise StoreError(
                f"The store {self._path} was replaced by another file while it is in use.",
                hint=_WAY_OUT,
                away=True,
            )

    def check_commit(self, connection: sa.Connection) -> None:
        """Check that what was just committed on this connection can be read by others.

        Raises:
            StoreError: the file, or its write-ahead log, was deleted, moved or replaced.
        """
        self.check()
        if self._has_log and not self._log.exists():
            # Whatever the log had is now in the file: it is not lost with this process.
            driver: Any = connection.connection.driver_connection
            driver.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            raise StoreError(
                f"The write-ahead log {self._log} was deleted while the store is in use.",
                hint="Restart what uses the store.",
                away=True,
            )

    def _current(self) -> tuple[int, int] | None:
        try:
            status = self._path.stat()
        except OSError:
            return None
        return status.st_dev, status.st_ino

    def _before_connecting(self, *arguments: Any) -> None:
        self.check()
