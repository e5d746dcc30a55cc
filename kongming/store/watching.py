"""Watching the feed: others' changes within a second, through outages of the database.

PostgreSQL notifies; SQLite is asked whether its file was written to, which costs microseconds.
Either way what counts is the sequence number: a notification that is lost delays a change by a
second and loses nothing.
"""

from __future__ import annotations

import logging
import os
import random
import select
import threading
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Self

import sqlalchemy as sa

from kongming.errors import StoreError
from kongming.store.feed import CHANNEL, Feed
from kongming.store.service_entries import Change

LOG = logging.getLogger(__name__)

POLL_S = 1.0
"""On PostgreSQL the feed is read this often even without a notification."""

SQLITE_POLL_S = 0.2

BACK_OFF_S = (0.1, 1.0)
"""First and longest wait before a lost connection is tried again."""

_BREATH_S = 0.02
"""Changes that follow each other closely are taken together."""

Callback = Callable[[Sequence[Change]], None]


class Watching(Feed):
    """The part of the store that watches for changes."""

    def watch_changes(
        self,
        callback: Callback,
        *,
        after: int | None = None,
        own: Collection[str] | None = None,
    ) -> Watch:
        """Call ``callback`` with changes, oldest first, on a thread of its own until closed.

        Changes after the sequence number ``after`` are given, or from now on; those of this very
        ``Store`` too (their ``origin`` is the store's own), where ``own`` does not name the kinds
        that are wanted of them. A change of kind ``reset`` says that some are not known any more,
        or that the callback failed: read everything again.
        """
        first = self.last_change() if after is None else after
        return Watch(self, self._engine, callback, first, own)


class Watch:
    """A watch under way; close it before the store, or use it as a context.

    ``position`` is the sequence number up to which changes were given, ``seen_at`` the
    monotonic time at which the feed was last read to its end.
    """

    def __init__(
        self,
        feed: Feed,
        engine: sa.Engine,
        callback: Callback,
        after: int,
        own: Collection[str] | None = None,
    ) -> None:
        self._feed = feed
        self._own = own
        self._engine = engine
        self._callback = callback
        self._wake_out, self._wake_in = os.pipe()
        self._closing = threading.Event()
        self._failed = False
        self.position = after
        self.connected = False
        self.seen_at = time.monotonic()
        self._thread = threading.Thread(target=self._run, name="kongming-watch", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Returns when the callback is not running and will not be called again."""
        if self._closing.is_set():
            return
        self._closing.set()
        os.write(self._wake_in, b"x")
        self._thread.join()
        os.close(self._wake_in)
        os.close(self._wake_out)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _run(self) -> None:
        first, longest = BACK_OFF_S
        wait_s = first
        postgresql = self._engine.dialect.name == "postgresql"
        while not self._closing.is_set():
            try:
                with self._listening() if postgresql else self._looking() as waited:
                    wait_s = first
                    self._follow(waited)
            except Exception as error:
                # Drivers raise errors of their own below SQLAlchemy; the watch outlives them all.
                if self.connected or wait_s == first:
                    LOG.warning("the feed of changes is lost for now: %s", _line(error))
                self.connected = False
                self._closing.wait(wait_s * random.uniform(0.5, 1.0))
                wait_s = min(longest, 2.0 * wait_s)

    def _follow(self, waited: Callable[[], bool]) -> None:
        # Whatever happened before the connection listened is read first.
        due = True
        while not self._closing.is_set():
            if due:
                self._deliver()
                self.connected, self.seen_at = True, time.monotonic()
                self._closing.wait(_BREATH_S)
            due = waited()

    def _deliver(self) -> None:
        while not self._closing.is_set():
            changes, until = self._feed.news_since(self.position, own=self._own)
            if self._failed:
                changes = [Change(until, "reset", "", "", "", time.time())]
            if not changes:
                self.position = until
                return
            self._failed = True
            try:
                self._callback(changes)
            except Exception:
                LOG.exception("what follows changes of the store failed; it is told to reset")
                raise StoreError("The changes could not be applied.") from None
            self._failed = False
            self.position = until

    @contextmanager
    def _listening(self) -> Iterator[Callable[[], bool]]:
        """Gives a call that returns, True, at a notification or after ``POLL_S``."""
        connection = self._engine.connect()
        try:
            connection = connection.execution_options(isolation_level="AUTOCOMMIT")
            connection.exec_driver_sql(f"LISTEN {CHANNEL}")
            driver: Any = connection.connection.driver_connection

            def wait() -> bool:
                select.select([driver.fileno(), self._wake_out], [], [], POLL_S)
                for _ in driver.notifies(timeout=0.0):
                    pass
                return True

            yield wait
        finally:
            # It listens: no other may get it from the pool.
            connection.invalidate()
            connection.close()

    @contextmanager
    def _looking(self) -> Iterator[Callable[[], bool]]:
        """Gives a call that says, after ``SQLITE_POLL_S``, whether another wrote to the file."""
        connection = self._engine.raw_connection()
        try:
            cursor: Any = connection.cursor()

            def version() -> int:
                cursor.execute("PRAGMA data_version")
                return int(cursor.fetchone()[0])

            seen = version()

            def wait() -> bool:
                nonlocal seen
                select.select([self._wake_out], [], [], SQLITE_POLL_S)
                before, seen = seen, version()
                return seen != before

            yield wait
        finally:
            connection.close()


def _line(error: Exception) -> str:
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
