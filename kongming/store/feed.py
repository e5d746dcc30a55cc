"""The feed of changes: what other servers on the same store learn of, in order and without gaps.

A change is written in the transaction that makes it. Its number comes from one row that stays
locked until the commit: a reader who has seen number n will never see a smaller one appear.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager

import sqlalchemy as sa

from kongming.errors import StoreError
from kongming.store import service_schema as tables
from kongming.store.compact import FactsAtHand, Parts
from kongming.store.connection import Connection
from kongming.store.service_entries import Change

CHANNEL = "kongming_change"
"""PostgreSQL's channel; a notification carries the last sequence number."""

_PARTS_AT_HAND = 20_000


class Noted:
    """What one transaction changes: kind, owner and key of each, once.

    ``parts`` are those of fingerprints (kongming.store.compact) that it makes sure of; ``known``
    are those that need no writing, as earlier transactions did.
    """

    def __init__(self, known: Parts) -> None:
        self._seen: dict[tuple[str, str, str], None] = {}
        self.known = known
        self.parts: Parts = {}

    def note(self, kind: str, owner: str, key: str) -> None:
        self._seen[kind, owner, key] = None

    def __iter__(self) -> Iterator[tuple[str, str, str]]:
        return iter(self._seen)

    def __len__(self) -> int:
        return len(self._seen)


class Feed(Connection):
    """The part of the store that tells others what has changed."""

    def __init__(self, engine: sa.Engine, url: str) -> None:
        super().__init__(engine, url)
        self._parts: Parts = {}
        self._facts = FactsAtHand()

    @contextmanager
    def _changing(self) -> Iterator[tuple[sa.Connection, Noted]]:
        """A transaction as ``_writing`` gives; what is noted in it becomes changes."""
        noted = Noted(self._parts)
        try:
            with self._writing() as connection:
                yield connection, noted
                # Last, so that the feed is locked for the shortest time, and never before a row.
                _append(connection, noted, self.origin)
        except StoreError:
            # What comes back after an outage may be an older copy of the store.
            self._parts = {}
            raise
        self._remember(noted.parts)

    def _remember(self, parts: Parts) -> None:
        """Keep parts at hand; they never change, and are bounded by forgetting all of them."""
        if len(self._parts) + len(parts) > _PARTS_AT_HAND:
            self._parts = {}
        self._parts.update(parts)

    def last_change(self) -> int:
        """The newest sequence number; 0 before any change.

        Ask before reading the state that changes are to be applied to, and go on from there.
        """
        with self._reading() as connection:
            return connection.scalar(sa.select(tables.feed.c.last)) or 0

    def changes_since(self, sequence: int, limit: int = 1000) -> list[Change]:
        """Up to ``limit`` changes after ``sequence``, oldest first.

        One change of kind ``reset`` alone where some of them are not held any more: after a long
        absence, or where the store was put back from an older copy.
        """
        return self.news_since(sequence, limit)[0]

    def news_since(
        self, sequence: int, limit: int = 1000, *, own: Collection[str] | None = None
    ) -> tuple[list[Change], int]:
        """``changes_since``, and the sequence number to go on from.

        ``own`` are the kinds that are given of what was changed through this opening; None: all.
        """
        change, feed = tables.change.c, tables.feed.c
        with self._reading() as connection:
            # Before the changes: whatever is not given of those up to here is left out for good.
            until = connection.scalar(sa.select(feed.last)) or 0
            if until == sequence:
                return [], sequence
            query = sa.select(tables.change).where(
                change.sequence > sequence, change.sequence <= until
            )
            if own is not None:
                query = query.where(sa.or_(change.origin != self.origin, change.kind.in_(own)))
            rows = connection.execute(query.order_by(change.sequence).limit(limit)).all()
            # After the changes: what is deleted in between must show as missing.
            last, trimmed = connection.execute(sa.select(feed.last, feed.trimmed)).one()
        if sequence < trimmed or sequence > last:
            self._parts = {}
            return [Change(last, "reset", "", "", "", time.time())], last
        found = [Change(*row) for row in rows]
        return found, found[-1].sequence if len(found) == limit else until


def _append(connection: sa.Connection, noted: Noted, origin: str) -> None:
    if not noted:
        return
    feed = tables.feed
    last = connection.scalar(
        sa.update(feed).values(last=feed.c.last + len(noted)).returning(feed.c.last)
    )
    assert last is not None
    first, at = last - len(noted) + 1, time.time()
    connection.execute(
        sa.insert(tables.change),
        [
            {
                "sequence": first + place,
                "kind": kind,
                "owner": owner,
                "key": key,
                "origin": origin,
                "changed_at": at,
            }
            for place, (kind, owner, key) in enumerate(noted)
        ],
    )
    if connection.dialect.name == "postgresql":
        connection.execute(sa.select(sa.func.pg_notify(CHANNEL, str(last))))
