"""Retention: aggregate live fingerprints into hourly statistics and delete expired rows.

Only live fingerprints are aggregated. Models, the runs and signatures that somebody asked for, the
newest reference of each CPU, and the fingerprints that they refer to are never deleted. All work is
done in short transactions.
"""

from __future__ import annotations

import logging
import math
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime, timedelta
from typing import Any

import sqlalchemy as sa

from kongming.records.errors import InputError, StoreError
from kongming.records.fingerprint import Fingerprint
from kongming.store import compact, schema
from kongming.store import service_schema as tables
from kongming.store.feed import Noted
from kongming.store.row_ids import record_id
from kongming.store.service_entries import HourlyFingerprint
from kongming.store.unpacking import COLUMNS, Unpacking
from kongming.store.writing import batches, insert, put_parts

log = logging.getLogger(__name__)

RETENTION_LOCK = 4_716_533_891
"""Key of PostgreSQL's advisory lock: one server at a time runs retention."""

DAY_S = 86_400.0

_ROWS = 2_000
"""Maximum number of rows per transaction (a single hour of a node is never split)."""

_DELETING = 0.5
"""The share of a pass's time for what is only deleted; the rest is always left for aggregating."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Retention:
    """Retention periods in seconds."""

    live_s: float = 3 * DAY_S
    """Live fingerprints as reported; older ones are aggregated into hourly statistics."""
    hourly_s: float = 400 * DAY_S
    """Hourly statistics of fingerprints."""
    changes_s: float = 3600.0
    """Change feed: a server that was disconnected for longer reloads everything."""
    assignments_s: float = 90 * DAY_S
    """Assignments that have ended, and forecasts for them."""
    realised_s: float = 400 * DAY_S
    """Finished runs with their predictions."""
    operations_s: float = 90 * DAY_S
    """Operations that have ended, or whose server has."""
    unasked_s: float = 90 * DAY_S
    """Runs and signatures that were not requested."""
    gone_s: float = 400 * DAY_S
    """Agents that are silent, readings of references, and references of suites that newer ones have
    replaced."""

    def __post_init__(self) -> None:
        for name, minimum in _MINIMUM_S.items():
            value = getattr(self, name)
            if not minimum <= value < math.inf:
                raise InputError(
                    "is too short.", field=name, value=value, allowed=f"{minimum:g} s or more"
                )


_MINIMUM_S = {period.name: 3600.0 for period in fields(Retention)} | {"changes_s": 60.0}


@dataclass(frozen=True, slots=True)
class Retained:
    """Result of one retention pass. ``finished`` False: the time budget ended; call again. Else
    what was due at ``complete_at`` (unix seconds) is done on every node.

    ``failed`` are nodes whose fingerprints could not be aggregated, which is logged;
    ``rolled_up`` live fingerprints were aggregated into ``hours`` hourly statistics; ``deleted``
    counts rows by table.
    """

    rolled_up: int = 0
    hours: int = 0
    deleted: Mapping[str, int] = field(default_factory=dict)
    finished: bool = True
    complete_at: float | None = None
    failed: tuple[str, ...] = ()


class Retaining(Unpacking):
    """Store methods for retention."""

    _round: tuple[float, list[str]] | None = None
    """When this round over all nodes began, and the nodes that it has still to come to, the next
    one last."""

    def retain(
        self,
        retention: Retention | None = None,
        *,
        now: float | None = None,
        budget_s: float = math.inf,
    ) -> Retained:
        """Run one retention pass of at most about ``budget_s``; ``now`` is in unix seconds.

        A pass goes on with the node at which the last one ended. While another server runs
        retention, nothing is aggregated and ``finished`` is False.
        """
        periods = retention or Retention()
        at = time.time() if now is None else now
        begun = time.monotonic()
        deleted: dict[str, int] = defaultdict(int)
        failed: list[str] = []
        rolled_up = hours = 0

        def result(finished: bool, complete_at: float | None = None) -> Retained:
            return Retained(rolled_up, hours, dict(deleted), finished, complete_at, tuple(failed))

        # First, since aggregating the reports of a large fleet may never come to an end.
        everything = self._delete_outdated(periods, at, begun + _DELETING * budget_s, deleted)
        # Looking for rows to delete may take longer than all of the pass.
        deadline = max(begun + budget_s, time.monotonic() + (1.0 - _DELETING) * budget_s)
        hourly_limit = _moment(at - periods.hourly_s)
        hour = _moment(at - periods.live_s).replace(minute=0, second=0, microsecond=0)
        if self._round is None:
            self._round = at, self._reporting_nodes()[::-1]
        begun_at, nodes = self._round
        while nodes:
            node_id = nodes[-1]
            try:
                while self._has_older(node_id, hour):
                    if time.monotonic() > deadline:
                        return result(False)
                    rows, hours_written = self._roll_up(node_id, hour)
                    if not rows:
                        return result(False)
                    rolled_up, hours = rolled_up + rows, hours + hours_written
                    deleted["fingerprint"] += rows
            except StoreError:
                raise
            except Exception:
                # The rows of all others are thinned nevertheless.
                everything = False
                failed.append(node_id)
                log.exception("Fingerprints of node %s could not be aggregated.", node_id)
            table = tables.fingerprint_hour
            old = (table.c.node_id == node_id) & (table.c.hour_at < hourly_limit)
            while count := self._delete(table, old):
                deleted[table.name] += count
            nodes.pop()
            if nodes and time.monotonic() > deadline:
                return result(False)
        self._round = None
        return result(everything, begun_at if everything else None)

    def hourly_fingerprints(
        self,
        node_id: str,
        *,
        cpu: int | None = None,
        since: float | None = None,
        until: float | None = None,
    ) -> list[HourlyFingerprint]:
        """Return a node's hourly statistics, oldest first, of hours in ``since`` <= t < ``until``.

        Hours whose fingerprints are still stored individually have no statistics yet.
        """
        table = tables.fingerprint_hour
        query = sa.select(table).where(table.c.node_id == node_id)
        if cpu is not None:
            query = query.where(table.c.cpu == cpu)
        if since is not None:
            query = query.where(table.c.hour_at >= _moment(since))
        if until is not None:
            query = query.where(table.c.hour_at < _moment(until))
        query = query.order_by(table.c.hour_at, table.c.cpu, table.c.suite_version)
        with self._reading() as connection:
            rows = connection.execute(query).all()
            names = self._parts_of_ids(connection, {row.document["names"] for row in rows})
        return [
            HourlyFingerprint(
                node_id=row.node_id,
                cpu=row.cpu,
                suite_version=row.suite_version,
                hour_at=row.hour_at.replace(tzinfo=UTC).timestamp(),
                count=row._mapping["count"],
                **_figures(row.document, names),
            )
            for row in rows
        ]

    def size_bytes(self) -> int:
        """Size of the database on disk in bytes, including indexes and free pages."""
        with self._reading() as connection:
            if connection.dialect.name == "postgresql":
                query = sa.select(sa.func.pg_database_size(sa.func.current_database()))
                return int(connection.scalar(query) or 0)
            pages = connection.exec_driver_sql("PRAGMA page_count").scalar()
            each = connection.exec_driver_sql("PRAGMA page_size").scalar()
            return int(pages or 0) * int(each or 0)

    def _reporting_nodes(self) -> list[str]:
        with self._reading() as connection:
            node_ids = connection.scalars(sa.select(tables.latest.c.node_id).distinct())
            return sorted(node_ids)

    def _has_older(self, node_id: str, hour: datetime) -> bool:
        with self._reading() as connection:
            query = _expired_live(node_id, hour).with_only_columns(sa.literal(1)).limit(1)
            return connection.scalar(query) is not None

    def _roll_up(self, node_id: str, hour: datetime) -> tuple[int, int]:
        """Aggregate a node's complete hours before ``hour``; return rows deleted, hours written."""
        started = schema.fingerprint.c.started_at
        with self._changing() as (connection, noted):
            if not _try_lock(connection):
                return 0, 0
            query = _expired_live(node_id, hour).order_by(started).limit(_ROWS)
            expired = connection.scalars(query.with_only_columns(started)).all()
            if not expired:
                return 0, 0
            times = [moment for moment in expired if moment is not None] or [hour]
            last = max(times)
            if len(expired) == _ROWS and last >= _hour(times[0]) + timedelta(hours=1):
                hour = min(hour, _hour(last))
            else:
                hour = min(hour, _hour(last) + timedelta(hours=1))
            groups: dict[tuple[datetime, int, str], list[Fingerprint]] = defaultdict(list)
            rows = connection.execute(_expired_live(node_id, hour).add_columns(started)).all()
            parts = self._parts_of(connection, [row.document for row in rows])
            # What is damaged is in no statistics, and goes with the others.
            for key, fingerprint in self._each(
                "a fingerprint",
                rows,
                lambda row: (
                    (_hour(row.started_at), row.cpu, row.suite_version),
                    compact.unpack(
                        record_id(row.id), row.cpu, row.suite_version, row.document, parts
                    ),
                ),
                lambda row: row.id,
            ):
                groups[key].append(fingerprint)
            for (hour_at, cpu, version), prints in sorted(groups.items(), key=lambda item: item[0]):
                self._put_hour(connection, noted, (node_id, hour_at, cpu, version), prints)
            for batch in batches([row.id for row in rows]):
                table = schema.fingerprint
                connection.execute(sa.delete(table).where(table.c.id.in_(batch)))
        return len(rows), len(groups)

    def _put_hour(
        self,
        connection: sa.Connection,
        noted: Noted,
        key: tuple[str, datetime, int, str],
        prints: list[Fingerprint],
    ) -> None:
        table = tables.fingerprint_hour
        node_id, hour_at, cpu, version = key
        count = len(prints)
        summary = _summary(prints)
        query = sa.select(table.c.count, table.c.document).where(
            table.c.node_id == node_id,
            table.c.hour_at == hour_at,
            table.c.cpu == cpu,
            table.c.suite_version == version,
        )
        rows = connection.execute(query.add_columns(table.c.node_id)).all()
        # Late reports of an agent that was disconnected.
        for stored, stored_count in self._each(
            "hourly statistics of node",
            rows,
            lambda row: (
                _figures(row.document, self._parts_of_ids(connection, {row.document["names"]})),
                int(row._mapping["count"]),
            ),
            lambda row: row.node_id,
        ):
            summary = _merged(stored, stored_count, summary, count)
            count += stored_count
        names_id, names_part = compact.part([list(summary["surrogates"]), list(summary["passive"])])
        put_parts(connection, noted, {names_id: names_part})
        document = {
            "names": names_id,
            "surrogates": [
                [_short(v) for v in values] for values in summary["surrogates"].values()
            ],
            "passive": [_short(value) for value in summary["passive"].values()],
        }
        statement = insert(connection, table).values(
            node_id=node_id,
            hour_at=hour_at,
            cpu=cpu,
            suite_version=version,
            count=count,
            document=document,
        )
        connection.execute(
            statement.on_conflict_do_update(
                index_elements=["node_id", "hour_at", "cpu", "suite_version"],
                set_={"count": statement.excluded.count, "document": statement.excluded.document},
            )
        )

    def _delete_outdated(
        self, periods: Retention, now: float, until: float, deleted: dict[str, int]
    ) -> bool:
        """Delete expired rows that are not aggregated, counted in ``deleted``; return whether none
        are left. After ``until``, of the monotonic clock, each table has one more transaction."""
        finished = True
        while count := self._trim_feed(now - periods.changes_s):
            deleted["change"] += count
            if time.monotonic() > until:
                finished = False
                break
        for table, condition in self._outdated(periods, now):
            while count := self._delete(table, condition):
                deleted[table.name] += count
                if count < _ROWS:
                    break
                if time.monotonic() > until:
                    finished = False
                    break
        return finished

    def _outdated(
        self, periods: Retention, now: float
    ) -> Iterable[tuple[sa.Table, sa.ColumnElement[bool]]]:
        assignment, operation = tables.assignment.c, tables.operation.c
        ended = sa.func.coalesce(assignment.ended_at, assignment.expires_at)
        yield (
            tables.assignment,
            assignment.state.in_(("released", "expired")) & (ended < now - periods.assignments_s),
        )
        # The forecast of a running application is needed when it ends.
        running = sa.exists().where(
            assignment.assignment_id == tables.forecast.c.assignment_id,
            assignment.state.in_(("reserved", "bound")),
        )
        yield tables.forecast, (tables.forecast.c.made_at < now - periods.assignments_s) & ~running
        yield tables.realised, tables.realised.c.ended_at < now - periods.realised_s
        # One whose server ended before it has no end, and neither has a request to cancel one.
        last_heard = sa.func.coalesce(
            operation.ended_at, operation.document["told_at"].as_float(), operation.created_at
        )
        yield tables.operation, last_heard < now - periods.operations_s
        yield from _unneeded(periods, now)

    def _delete(self, table: sa.Table, condition: sa.ColumnElement[bool]) -> int:
        key = list(table.primary_key.columns)
        keys = sa.select(*key).where(condition).limit(_ROWS)
        with self._reading() as connection:
            if connection.execute(keys.limit(1)).first() is None:
                return 0
        with self._writing() as connection:
            key_columns = sa.tuple_(*key) if len(key) > 1 else key[0]
            return connection.execute(sa.delete(table).where(key_columns.in_(keys))).rowcount

    def _trim_feed(self, before: float) -> int:
        change, feed = tables.change, tables.feed
        oldest = (
            sa.select(change.c.sequence, change.c.changed_at)
            .order_by(change.c.sequence)
            .limit(_ROWS)
            .subquery()
        )
        query = sa.select(sa.func.max(oldest.c.sequence)).where(oldest.c.changed_at < before)
        with self._reading() as connection:
            last = connection.scalar(query)
        if last is None:
            return 0
        with self._writing() as connection:
            connection.execute(sa.update(feed).where(feed.c.trimmed < last).values(trimmed=last))
            return connection.execute(sa.delete(change).where(change.c.sequence <= last)).rowcount


def _unneeded(periods: Retention, now: float) -> Iterable[tuple[sa.Table, sa.ColumnElement[bool]]]:
    run, signature, reference = schema.run, schema.signature, schema.reference
    unasked = _moment(now - periods.unasked_s)
    yield run, ~run.c.asked & (run.c.started_at < unasked)
    yield signature, ~signature.c.asked & (signature.c.started_at < unasked)
    # What those referred to: live ones become hourly statistics instead.
    fingerprint = schema.fingerprint
    orphan = fingerprint.c.purpose.in_(("before", "level", "after", "signature"))
    yield (
        fingerprint,
        orphan & (fingerprint.c.started_at < unasked) & ~_referred_to(fingerprint),
    )
    gone = _moment(now - periods.gone_s)
    # Readings of references: what was read of them is in a table of its own.
    reading = fingerprint.c.purpose == "reference"
    yield fingerprint, reading & (fingerprint.c.started_at < gone) & ~_referred_to(fingerprint)
    newer = reference.alias()
    replaced = sa.exists().where(
        newer.c.node_id == reference.c.node_id,
        newer.c.cpu == reference.c.cpu,
        newer.c.taken_at > reference.c.taken_at,
    )
    modelled = sa.exists().where(schema.model.c.node_id == reference.c.node_id)
    yield reference, (reference.c.taken_at < gone) & replaced & ~modelled
    agent, delivery = tables.agent, tables.delivery
    has_agent = sa.exists().where(agent.c.node_id == delivery.c.node_id)
    yield agent, agent.c.seen_at < now - periods.gone_s
    yield delivery, ~has_agent & ~sa.exists().where(tables.latest.c.node_id == delivery.c.node_id)


def _referred_to(fingerprint: sa.Table) -> sa.ColumnElement[bool]:
    run = schema.run
    return sa.or_(
        *(
            sa.exists().where(column == fingerprint.c.id)
            for column in (
                run.c.fingerprint_id,
                run.c.before_id,
                run.c.after_id,
                schema.signature.c.fingerprint_id,
                tables.latest.c.fingerprint_id,
            )
        )
    )


def _expired_live(node_id: str, hour: datetime) -> sa.Select[Any]:
    """Select the unreferenced live fingerprints of a node before ``hour``."""
    table = schema.fingerprint
    return sa.select(*COLUMNS).where(
        table.c.node_id == node_id,
        table.c.purpose == "live",
        table.c.started_at < hour,
        ~_referred_to(table),
    )


def _try_lock(connection: sa.Connection) -> bool:
    """Try to lock retention against other servers; SQLite has a single writer anyway."""
    if connection.dialect.name != "postgresql":
        return True
    return bool(connection.scalar(sa.select(sa.func.pg_try_advisory_xact_lock(RETENTION_LOCK))))


def _summary(prints: list[Fingerprint]) -> dict[str, Any]:
    costs: dict[str, list[float]] = defaultdict(list)
    passive: dict[str, list[float]] = defaultdict(list)
    for fingerprint in prints:
        for name, seconds in fingerprint.times().items():
            costs[name].append(seconds)
        for name, value in fingerprint.passive.items():
            passive[name].append(value)
    return {
        "surrogates": {
            name: tuple(_quantile(sorted(values), q) for q in (0.5, 0.1, 0.9))
            for name, values in sorted(costs.items())
        },
        "passive": {name: math.fsum(v) / len(v) for name, v in sorted(passive.items())},
    }


def _merged(
    first: dict[str, Any], first_count: int, second: dict[str, Any], second_count: int
) -> dict[str, Any]:
    """Merge two summaries of one hour, weighted by count: an approximation of the quantiles."""
    share = second_count / (first_count + second_count)

    def between(a: float, b: float) -> float:
        return a + (b - a) * share

    surrogates, passive = dict(first["surrogates"]), dict(first["passive"])
    for name, values in second["surrogates"].items():
        first_values = surrogates.get(name, values)
        surrogates[name] = tuple(between(a, b) for a, b in zip(first_values, values, strict=True))
    for name, value in second["passive"].items():
        passive[name] = between(passive.get(name, value), value)
    return {"surrogates": surrogates, "passive": passive}


def _figures(document: Mapping[str, Any], parts: compact.Parts) -> dict[str, Any]:
    surrogates, passive = parts[document["names"]]
    return {
        "surrogates": {
            name: (values[0], values[1], values[2])
            for name, values in zip(surrogates, document["surrogates"], strict=True)
        },
        "passive": dict(zip(passive, document["passive"], strict=True)),
    }


def _quantile(ordered: list[float], q: float) -> float:
    position = q * (len(ordered) - 1)
    low = int(position)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (position - low)


def _short(value: float) -> float:
    return float(f"{value:.6g}")


def _moment(at: float) -> datetime:
    return datetime.fromtimestamp(at, UTC).replace(tzinfo=None)


def _hour(moment: datetime) -> datetime:
    return moment.replace(minute=0, second=0, microsecond=0)
