"""Applications, and the campaigns that profile them: what lets interrupted work resume."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

import sqlalchemy as sa

from kongming.store import schema
from kongming.store.connection import Connection
from kongming.store.writing import insert, iso, now


@dataclass(frozen=True, slots=True)
class StoredApplication:
    """An application as it was profiled; ``document`` is what the profiling command gave."""

    name: str
    identity: str
    document: Mapping[str, Any]


class ApplicationEntry(NamedTuple):
    """A line of the list of applications. ``last_run_at`` is UTC in ISO 8601, None before any."""

    name: str
    identity: str
    metric_unit: str
    last_run_at: str | None


@dataclass(frozen=True, slots=True)
class Campaign:
    """One profiling campaign; ``finished_at`` None while it is under way or interrupted."""

    id: str
    key: str
    document: Mapping[str, Any]
    opened_at: str
    finished_at: str | None


class Campaigns(Connection):
    """The part of the store that holds applications and campaigns."""

    def put_application(self, name: str, identity: str, document: Mapping[str, Any]) -> None:
        """Keep an application, in place of what was kept for this name and identity."""
        with self._writing() as connection:
            statement = insert(connection, schema.application).values(
                name=name, identity=identity, put_at=now(), document=dict(document)
            )
            new = statement.excluded
            connection.execute(
                statement.on_conflict_do_update(
                    index_elements=["name", "identity"],
                    set_={"put_at": new.put_at, "document": new.document},
                )
            )

    def application(self, name: str, identity: str | None = None) -> StoredApplication | None:
        """The application that was put last under this name (and identity); None without any."""
        table = schema.application
        query = sa.select(table).where(table.c.name == name).order_by(table.c.put_at.desc())
        if identity is not None:
            query = query.where(table.c.identity == identity)
        with self._reading() as connection:
            row = connection.execute(query.limit(1)).one_or_none()
        return None if row is None else StoredApplication(row.name, row.identity, row.document)

    def stored_applications(self) -> list[StoredApplication]:
        """Every application that was put, in the order of time."""
        query = sa.select(schema.application).order_by(schema.application.c.put_at)
        with self._reading() as connection:
            rows = connection.execute(query).all()
        return [StoredApplication(row.name, row.identity, row.document) for row in rows]

    def applications(self) -> list[ApplicationEntry]:
        """Every application that was put or has runs; by name, of one name the latest first."""
        put, run = schema.application, schema.run
        ran = sa.select(
            run.c.app,
            run.c.identity,
            sa.func.max(run.c.metric_unit),
            sa.func.max(run.c.started_at),
        ).group_by(run.c.app, run.c.identity)
        with self._reading() as connection:
            seen: dict[tuple[str, str], tuple[str, datetime | None]] = {
                (row.name, row.identity): (_unit(row.document), None)
                for row in connection.execute(sa.select(put))
            }
            for app, identity, unit, last in connection.execute(ran):
                seen[app, identity] = (unit, last)
        ordered = sorted(seen.items(), key=lambda item: item[1][1] or datetime.min, reverse=True)
        return [
            ApplicationEntry(name, identity, unit, None if last is None else iso(last))
            for (name, identity), (unit, last) in sorted(ordered, key=lambda item: item[0][0])
        ]

    def open_campaign(self, key: str, document: Mapping[str, Any]) -> Campaign:
        """The unfinished campaign of this key, else a new one with this document.

        The document of an unfinished campaign stays what it was: resuming keeps its seed.
        """
        table = schema.campaign
        with self._writing() as connection:
            connection.execute(
                insert(connection, table)
                .values(id=uuid.uuid4().hex, key=key, opened_at=now(), document=dict(document))
                .on_conflict_do_nothing(
                    index_elements=["key"], index_where=table.c.finished_at.is_(None)
                )
            )
            query = sa.select(table).where(table.c.key == key, table.c.finished_at.is_(None))
            return _campaign(connection.execute(query).one())

    def campaign_steps_done(self, campaign_id: str) -> set[int]:
        """Steps of which there is a run, good or failed, or a signature."""
        found: set[int] = set()
        with self._reading() as connection:
            for table in (schema.run, schema.signature):
                query = sa.select(table.c.step).where(
                    table.c.campaign == campaign_id, table.c.step >= 0
                )
                found.update(connection.scalars(query))
        return found

    def finish_campaign(self, campaign_id: str) -> None:
        """No step is left: the next campaign of this key is a new one."""
        table = schema.campaign
        with self._writing() as connection:
            connection.execute(
                sa.update(table)
                .where(table.c.id == campaign_id, table.c.finished_at.is_(None))
                .values(finished_at=now())
            )

    def campaigns(self) -> list[Campaign]:
        """All campaigns, newest first."""
        query = sa.select(schema.campaign).order_by(schema.campaign.c.opened_at.desc())
        with self._reading() as connection:
            return [_campaign(row) for row in connection.execute(query)]


def _campaign(row: sa.Row[Any]) -> Campaign:
    finished = None if row.finished_at is None else iso(row.finished_at)
    return Campaign(row.id, row.key, row.document, iso(row.opened_at), finished)


def _unit(document: Mapping[str, Any]) -> str:
    """The unit of an application that has no run yet."""
    metric = document.get("metric")
    if isinstance(metric, Mapping) and isinstance(metric.get("unit"), str):
        return str(metric["unit"])
    return "s"
