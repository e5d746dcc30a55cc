"""Change feed subscription: delivers changes within a second and survives database outages.

PostgreSQL notifies; SQLite is polled for writes to its file, which takes microseconds. In both
cases the sequence number decides what is delivered: a lost notification delays a change by a
second, but no change is lost.
"""

from __future__ import annotations

import logging
import os
import select
import threading
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Self

import sqlalchemy as sa

from kongming.backoff import Backoff
from kongming.records.errors import StoreError
from kongming.store.feed import CHANNEL, Feed
from kongming.store.service_entries import Change

LOG = logging.getLogger(__name__)

POLL_S = 1.0
"""Polling interval of the feed on PostgreSQL in the absence of notifications."""

SQLITE_POLL_S = 0.2

BACK_OFF_S = (0.1, 1.0)
"""Initial and maximum delay in seconds before reconnecting."""

_BATCH_DELAY_S = 0.02
"""Delay after each delivery, so that changes in quick succession form one batch."""

Callback = Callable[[Sequence[Change]], None]


class Watching(Feed):
    """Store methods for subscribing to changes."""

    def watch_changes(
        self,
        callback: Callback,
        *,
        after: int | None = None,
        own: Collection[str] | None = None,
    ) -> Watch:
        """Call ``callback`` with changes, oldest first, on a separate thread until closed.

        Delivers the changes after sequence number ``after`` (default: from now on). Changes of
        this same ``Store`` (with its ``origin``) are included; ``own`` restricts them to some
        kinds. A change of kind ``reset`` means that changes were missed, or that the callback
        failed: reload everything.
        """
        first = self.last_change() if after is None else after
        return Watch(self, self._engine, callback, first, own)


class Watch:
    """Active subscription; close it before the store, or use it as a context manager.

    ``position`` is the sequence number up to which changes were delivered, ``seen_at`` the
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
        """Stop; on return the callback is not running and will not be called again."""
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
        backoff = Backoff(*BACK_OFF_S)
        postgresql = self._engine.dialect.name == "postgresql"
        while not self._closing.is_set():
            try:
                with self._listening() if postgresql else self._polling() as wait:
                    self._follow(wait, backoff)
            except Exception as error:
                # Drivers also raise errors that SQLAlchemy does not wrap; survive all of them.
                if self.connected or not backoff.failures:
                    LOG.warning(
                        "connection to the change feed lost, reconnecting: %s", _line(error)
                    )
                self.connected = False
                self._closing.wait(backoff.after_failure())

    def _follow(self, wait: Callable[[], bool], backoff: Backoff) -> None:
        # First read the changes from before LISTEN.
        due = True
        while not self._closing.is_set():
            if due:
                self._deliver()
                # Not before: a feed that can be connected to may be one that cannot be read.
                backoff.after_success()
                self.connected, self.seen_at = True, time.monotonic()
                self._closing.wait(_BATCH_DELAY_S)
            due = wait()

    def _deliver(self) -> None:
        while not self._closing.is_set():
            changes, until = self._feed.news_since(self.position, own=self._own)
            if self._failed:
                changes = [Change(until, "reset", "", "", "", time.time())]
            if not changes:
                self.position = until
                return
            again, self._failed = self._failed, True
            try:
                self._callback(changes)
            except Exception:
                if not again:
                    LOG.exception("the callback for store changes failed; sending it a reset")
                raise StoreError("The changes could not be applied.") from None
            self._failed = False
            self.position = until

    @contextmanager
    def _listening(self) -> Iterator[Callable[[], bool]]:
        """Yield a function that returns True on a notification or after ``POLL_S``."""
        connection = self._engine.connect()
        try:
            connection = connection.execution_options(isolation_level="AUTOCOMMIT")
            connection.exec_driver_sql(f"LISTEN {CHANNEL}")
            driver: Any = connection.connection.driver_connection

            def wait() -> bool:
                _wait_for(POLL_S, driver.fileno(), self._wake_out)
                for _ in driver.notifies(timeout=0.0):
                    pass
                return True

            yield wait
        finally:
            # Do not return a listening connection to the pool.
            connection.invalidate()
            connection.close()

    @contextmanager
    def _polling(self) -> Iterator[Callable[[], bool]]:
        """Yield a function that returns, after ``SQLITE_POLL_S``, whether the file was written."""
        connection = self._engine.raw_connection()
        try:
            cursor: Any = connection.cursor()

            def version() -> int:
                cursor.execute("PRAGMA data_version")
                return int(cursor.fetchone()[0])

            last_version = version()

            def wait() -> bool:
                nonlocal last_version
                _wait_for(SQLITE_POLL_S, self._wake_out)
                before, last_version = last_version, version()
                return last_version != before

            yield wait
        finally:
            connection.close()


def _wait_for(seconds: float, *files: int) -> None:
    """Wait until one of these can be read. Not by ``select``, which takes no number above 1023: the
    server of a large fleet has more connections."""
    poll = select.poll()
    for file in files:
        poll.register(file, select.POLLIN)
    poll.poll(1000.0 * seconds)


def _line(error: Exception) -> str:
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
