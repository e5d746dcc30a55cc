"""Applications and the campaigns that profile them; interrupted campaigns can be resumed."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

import sqlalchemy as sa

from kongming.records import moments
from kongming.store import schema
from kongming.store.connection import Connection
from kongming.store.writing import insert, now


@dataclass(frozen=True, slots=True)
class StoredApplication:
    """Profiled application; ``document`` holds the settings that the profiling command stored."""

    name: str
    identity: str
    document: Mapping[str, Any]


class ApplicationEntry(NamedTuple):
    """Entry of the application list. ``last_run_at`` is UTC in ISO 8601, None without runs."""

    name: str
    identity: str
    metric_unit: str
    last_run_at: str | None


@dataclass(frozen=True, slots=True)
class Campaign:
    """Profiling campaign; ``finished_at`` is None while it is running or interrupted."""

    id: str
    key: str
    document: Mapping[str, Any]
    opened_at: str
    finished_at: str | None


class Campaigns(Connection):
    """Store methods for applications and campaigns."""

    def put_application(self, name: str, identity: str, document: Mapping[str, Any]) -> None:
        """Insert or replace the application of this name and identity."""
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
        """Return the most recently stored application of this name (and identity), or None."""
        table = schema.application
        query = sa.select(table).where(table.c.name == name).order_by(table.c.put_at.desc())
        if identity is not None:
            query = query.where(table.c.identity == identity)
        with self._reading() as connection:
            row = connection.execute(query.limit(1)).one_or_none()
        return None if row is None else StoredApplication(row.name, row.identity, row.document)

    def stored_applications(self) -> list[StoredApplication]:
        """Return all stored applications, oldest first."""
        query = sa.select(schema.application).order_by(schema.application.c.put_at)
        with self._reading() as connection:
            rows = connection.execute(query).all()
        return [StoredApplication(row.name, row.identity, row.document) for row in rows]

    def applications(self) -> list[ApplicationEntry]:
        """List applications that are stored or have runs, by name, then most recent run first."""
        stored, run = schema.application, schema.run
        runs = sa.select(
            run.c.app,
            run.c.identity,
            sa.func.max(run.c.metric_unit),
            sa.func.max(run.c.started_at),
        ).group_by(run.c.app, run.c.identity)
        with self._reading() as connection:
            rows = connection.execute(sa.select(stored)).all()
            latest: dict[tuple[str, str], tuple[str, datetime | None]] = {
                key: (unit, None)
                for key, unit in self._each(
                    "an application",
                    rows,
                    lambda row: ((row.name, row.identity), _unit(row.document)),
                    lambda row: row.name,
                )
            }
            for app, identity, unit, last in connection.execute(runs):
                latest[app, identity] = (unit, last)
        ordered = sorted(latest.items(), key=lambda item: item[1][1] or datetime.min, reverse=True)
        return [
            ApplicationEntry(name, identity, unit, None if last is None else _iso(last))
            for (name, identity), (unit, last) in sorted(ordered, key=lambda item: item[0][0])
        ]

    def open_campaign(
        self, key: str, document: Mapping[str, Any], *, campaign_id: str | None = None
    ) -> Campaign:
        """Return the unfinished campaign of this key, or create one with this document (and id).

        An unfinished campaign keeps its document: resuming reuses its seed.
        """
        new_id = campaign_id or uuid.uuid4().hex
        table = schema.campaign
        with self._writing() as connection:
            connection.execute(
                insert(connection, table)
                .values(id=new_id, key=key, opened_at=now(), document=dict(document))
                .on_conflict_do_nothing(
                    index_elements=["key"], index_where=table.c.finished_at.is_(None)
                )
            )
            query = sa.select(table).where(table.c.key == key, table.c.finished_at.is_(None))
            return _campaign(connection.execute(query).one())

    def campaign_steps_done(self, campaign_id: str) -> set[int]:
        """Return the steps with a stored run (successful or failed) or signature."""
        steps: set[int] = set()
        with self._reading() as connection:
            for table in (schema.run, schema.signature):
                query = sa.select(table.c.step).where(
                    table.c.campaign == campaign_id, table.c.step >= 0
                )
                steps.update(connection.scalars(query))
        return steps

    def finish_campaign(self, campaign_id: str) -> None:
        """Mark a campaign as finished; opening its key again creates a new campaign."""
        table = schema.campaign
        with self._writing() as connection:
            connection.execute(
                sa.update(table)
                .where(table.c.id == campaign_id, table.c.finished_at.is_(None))
                .values(finished_at=now())
            )

    def campaigns(self) -> list[Campaign]:
        """Return all campaigns, newest first."""
        query = sa.select(schema.campaign).order_by(schema.campaign.c.opened_at.desc())
        with self._reading() as connection:
            rows = connection.execute(query).all()
        return list(self._each("a campaign", rows, _campaign, lambda row: row.id))


def _iso(moment: datetime) -> str:
    return moments.format(moment, "seconds")


def _campaign(row: sa.Row[Any]) -> Campaign:
    finished = None if row.finished_at is None else _iso(row.finished_at)
    return Campaign(row.id, row.key, row.document, _iso(row.opened_at), finished)


def _unit(document: Mapping[str, Any]) -> str:
    """Metric unit of an application without runs, from its settings."""
    metric = document.get("metric")
    if isinstance(metric, Mapping) and isinstance(metric.get("unit"), str):
        return str(metric["unit"])
    return "s"
