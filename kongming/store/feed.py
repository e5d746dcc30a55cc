"""Change feed: an ordered, gap-free log of changes for other servers on the same store.

A change is written in the transaction that makes it. Its sequence number comes from a single row
that stays locked until the commit: after reading number n, no smaller number can appear.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager

import sqlalchemy as sa

from kongming.records.errors import StoreError
from kongming.store import service_schema as tables
from kongming.store.compact import FactsCache, Parts
from kongming.store.connection import Connection
from kongming.store.service_entries import Change

CHANNEL = "kongming_change"
"""PostgreSQL notification channel; the payload is the last sequence number."""

_MAX_CACHED_PARTS = 20_000


class Noted:
    """Distinct changes of one transaction: kind, owner and key of each.

    ``parts`` are the fingerprint parts (kongming.store.compact) that the transaction writes;
    ``known`` are parts that earlier transactions wrote already.
    """

    def __init__(self, known: Parts) -> None:
        self._changes: dict[tuple[str, str, str], None] = {}
        self.known = known
        self.parts: Parts = {}

    def note(self, kind: str, owner: str, key: str) -> None:
        self._changes[kind, owner, key] = None

    def __iter__(self) -> Iterator[tuple[str, str, str]]:
        return iter(self._changes)

    def __len__(self) -> int:
        return len(self._changes)


class Feed(Connection):
    """Store methods for writing and reading the change feed."""

    def __init__(self, engine: sa.Engine, url: str) -> None:
        super().__init__(engine, url)
        self._parts: Parts = {}
        self._facts = FactsCache()

    @contextmanager
    def _changing(self) -> Iterator[tuple[sa.Connection, Noted]]:
        """Write transaction that also appends the noted changes to the feed."""
        noted = Noted(self._parts)
        try:
            with self._writing() as connection:
                yield connection, noted
                # Last: the feed's lock is held as briefly as possible, and never taken before
                # a row's lock.
                _append(connection, noted, self.origin)
        except StoreError:
            # After an outage the store may have been restored from an older copy.
            self._parts = {}
            raise
        self._remember(noted.parts)

    def _remember(self, parts: Parts) -> None:
        """Cache parts, which never change; the cache is cleared when it is full."""
        if len(self._parts) + len(parts) > _MAX_CACHED_PARTS:
            self._parts = {}
        self._parts.update(parts)

    def last_change(self) -> int:
        """Return the newest sequence number; 0 before any change.

        Call it before reading the state that changes will be applied to, and continue from it.
        """
        with self._reading() as connection:
            return connection.scalar(sa.select(tables.feed.c.last)) or 0

    def news_since(
        self, sequence: int, limit: int = 1000, *, own: Collection[str] | None = None
    ) -> tuple[list[Change], int]:
        """Up to ``limit`` changes after ``sequence``, oldest first, and the number to go on from.

        One change of kind ``reset`` alone where some of them are not held any more: after a long
        absence, or where the store was put back from an older copy.
        ``own`` are the kinds that are given of what was changed through this opening; None: all.
        """
        change, feed = tables.change.c, tables.feed.c
        with self._reading() as connection:
            # Before the changes: changes up to here that the query filters out are never returned.
            until = connection.scalar(sa.select(feed.last)) or 0
            if until == sequence:
                return [], sequence
            query = sa.select(tables.change).where(
                change.sequence > sequence, change.sequence <= until
            )
            if own is not None:
                query = query.where(sa.or_(change.origin != self.origin, change.kind.in_(own)))
            rows = connection.execute(query.order_by(change.sequence).limit(limit)).all()
            # After the changes: a deletion in between must be detected.
            last, trimmed = connection.execute(sa.select(feed.last, feed.trimmed)).one()
        if sequence < trimmed or sequence > last:
            self._parts = {}
            return [Change(last, "reset", "", "", "", time.time())], last
        changes = [Change(*row) for row in rows]
        return changes, changes[-1].sequence if len(changes) == limit else until


def _append(connection: sa.Connection, noted: Noted, origin: str) -> None:
    if not noted:
        return
    feed = tables.feed
    last = connection.scalar(
        sa.update(feed).values(last=feed.c.last + len(noted)).returning(feed.c.last)
    )
    assert last is not None
    first, changed_at = last - len(noted) + 1, time.time()
    connection.execute(
        sa.insert(tables.change),
        [
            {
                "sequence": first + offset,
                "kind": kind,
                "owner": owner,
                "key": key,
                "origin": origin,
                "changed_at": changed_at,
            }
            for offset, (kind, owner, key) in enumerate(noted)
        ],
    )
    if connection.dialect.name == "postgresql":
        connection.execute(sa.select(sa.func.pg_notify(CHANNEL, str(last))))
