"""Assignments, agents and models in service: state shared by all servers on one store."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import sqlalchemy as sa

from kongming.records.errors import ConflictError, InputError, StoreError, UnknownNameError
from kongming.records.resident import ACTIVE, STATES, Resident
from kongming.store import schema
from kongming.store import service_schema as tables
from kongming.store.feed import Noted
from kongming.store.models import Models
from kongming.store.service_entries import Promotion, StoredAgent
from kongming.store.writing import batches, insert, wrote


class ServiceRecords(Models):
    """Store methods for assignments, agents and the models in service."""

    # -- assignments ----------------------------------------------------------------------------

    def put_assignment(self, assignment: Resident) -> Resident:
        """Store an assignment, and return the stored one.

        Two servers may change an assignment concurrently; its state only moves forward, so that
        the later write does not undo the earlier one: a bound assignment can be released but
        not reserved again or expired, a released one is final, and one whose reservation was
        extended does not expire at the older time. An expired one may be bound: the job runs.

        Raises:
            ConflictError: the id is that of another application or node.
            InputError: an unknown state.
        """
        return self.put_assignments([assignment])[0]

    def put_assignments(self, assignments: Sequence[Resident]) -> list[Resident]:
        """Store many assignments atomically, each as ``put_assignment`` does."""
        for assignment in assignments:
            if assignment.state not in STATES:
                raise InputError(
                    "is unknown.", field="state", value=assignment.state, allowed=", ".join(STATES)
                )
        with self._changing() as (connection, noted):
            stored = {
                # The same order everywhere prevents deadlocks between writers.
                assignment.assignment_id: _put_assignment(connection, noted, assignment)
                for assignment in sorted(assignments, key=lambda entry: entry.assignment_id)
            }
        return [stored[assignment.assignment_id] for assignment in assignments]

    def assignment(self, assignment_id: str) -> Resident | None:
        """Return the assignment of this id, or None."""
        table = tables.assignment
        query = sa.select(table).where(table.c.assignment_id == assignment_id)
        with self._reading() as connection:
            row = connection.execute(query).one_or_none()
        return None if row is None else _assignment(row)

    def assignments(
        self,
        *,
        active: bool | None = None,
        node_id: str | None = None,
        limit: int | None = None,
    ) -> list[Resident]:
        """Return assignments, newest first; optionally only active or only inactive ones."""
        table = tables.assignment
        query = sa.select(table)
        if active is not None:
            is_active = table.c.state.in_(ACTIVE)
            query = query.where(is_active if active else ~is_active)
        if node_id is not None:
            query = query.where(table.c.node_id == node_id)
        began = sa.func.coalesce(table.c.bound_at, table.c.reserved_at)
        query = query.order_by(began.desc(), table.c.assignment_id).limit(limit)
        with self._reading() as connection:
            rows = connection.execute(query).all()
        assignments = self._each("an assignment", rows, _assignment, lambda row: row.assignment_id)
        return list(assignments)

    # -- agents --------------------------------------------------------------------------------

    def put_agent(
        self, node_id: str, document: Mapping[str, Any], seen_at: float | None = None
    ) -> None:
        """Insert or replace an agent's description of itself. ``seen_at`` is the time of its last
        heartbeat, now by default."""
        with self._changing() as (connection, noted):
            statement = insert(connection, tables.agent)
            new = statement.excluded
            connection.execute(
                statement.on_conflict_do_update(
                    index_elements=["node_id"],
                    set_={"seen_at": new.seen_at, "document": new.document},
                ),
                {
                    "node_id": node_id,
                    "seen_at": time.time() if seen_at is None else seen_at,
                    "document": dict(document),
                },
            )
            noted.note("node", node_id, node_id)

    def agents_seen(self, seen_at: Mapping[str, float]) -> None:
        """Store the heartbeat times of many agents, by node, in one transaction.

        Unknown agents and times older than the stored ones are ignored. Heartbeats are too
        frequent for the change feed, so no change is noted.
        """
        if not seen_at:
            return
        table = tables.agent
        statement = (
            sa.update(table)
            .where(table.c.node_id == sa.bindparam("node"), table.c.seen_at < sa.bindparam("at"))
            .values(seen_at=sa.bindparam("at"))
        )
        with self._writing() as connection:
            connection.execute(
                statement, [{"node": node, "at": at} for node, at in sorted(seen_at.items())]
            )

    def agents(self, *, node_ids: Collection[str] | None = None) -> list[StoredAgent]:
        """Return all agents, or those of ``node_ids`` that are stored; by node."""
        table = tables.agent
        with self._reading() as connection:
            if node_ids is None:
                rows = list(connection.execute(sa.select(table)))
            else:
                rows = [
                    row
                    for batch in batches(node_ids)
                    for row in connection.execute(
                        sa.select(table).where(table.c.node_id.in_(batch))
                    )
                ]
        agents = self._each(
            "an agent of node",
            rows,
            lambda row: StoredAgent(row.node_id, dict(row.document), float(row.seen_at)),
            lambda row: row.node_id,
        )
        return sorted(agents, key=lambda agent: agent.node_id)

    def acknowledged(self, node_id: str) -> int:
        """Return the highest committed sequence number of a node; 0 for none."""
        table = tables.delivery
        with self._reading() as connection:
            query = sa.select(table.c.sequence).where(table.c.node_id == node_id)
            return connection.scalar(query) or 0

    def acknowledge(self, node_id: str, sequence: int) -> None:
        """Raise the acknowledged sequence number of a node; a lower one changes nothing."""
        with self._writing() as connection:
            acknowledge(connection, {node_id: sequence})

    # -- models in service ---------------------------------------------------------------------

    def promote(self, app: str, placement: str, version: int, reason: str = "") -> None:
        """Put a version of a model into service.

        Raises:
            UnknownNameError: there is no such version.
        """
        model = schema.model
        with self._changing() as (connection, noted):
            versions = connection.scalars(
                sa.select(model.c.version).where(model.c.app == app, model.c.placement == placement)
            ).all()
            if version not in versions:
                raise UnknownNameError(
                    f"version of the model of {app} at {placement}",
                    str(version),
                    map(str, versions),
                )
            connection.execute(
                sa.insert(tables.promotion).values(
                    app=app,
                    placement=placement,
                    version=version,
                    reason=reason,
                    promoted_at=time.time(),
                )
            )
            noted.note("model", app, placement)

    def roll_back(self, app: str, placement: str, version: int = 0, reason: str = "") -> int:
        """Put ``version`` into service, by default the one that was there before the present one;
        return its number.

        Raises:
            UnknownNameError: there is no such version.
            InputError: there is no earlier one.
        """
        version = version or self.version_before(app, placement)
        self.promote(app, placement, version, reason)
        return version

    def version_before(self, app: str, placement: str) -> int:
        """Return the version that was in service before the present one.

        Raises:
            UnknownNameError: the application has no model.
            InputError: there is no earlier one.
        """
        present = self.in_service(app, placement)
        versions = {entry.version for entry in self.models(app=app, placement=placement)}
        earlier = [promotion.version for promotion in self.promotions(app, placement)]
        earlier += sorted((number for number in versions if number < (present or 0)), reverse=True)
        previous = next(
            (number for number in earlier if number in versions and number != present), None
        )
        if present is None:
            trained = {entry.app for entry in self.models()}
            if app not in trained:
                raise UnknownNameError("model for an application", app, trained)
            raise InputError(f"has no model at {placement}.", field="app", value=app)
        if previous is None:
            raise InputError(
                f"has no earlier version at {placement} than version {present}.",
                field="app",
                value=app,
                hint=f"List its versions: kongming models --app {app} --all",
            )
        return previous

    def promotions(self, app: str, placement: str) -> list[Promotion]:
        """Return the promotions of a model, newest first."""
        table = tables.promotion
        query = (
            sa.select(*(column for column in table.c if column.name != "id"))
            .where(table.c.app == app, table.c.placement == placement)
            .order_by(table.c.id.desc())
        )
        with self._reading() as connection:
            return [Promotion(*row) for row in connection.execute(query)]

    def in_service(self, app: str, placement: str) -> int | None:
        """Return the version in service: the last promoted, else the newest; None without any."""
        return self.models_in_service(app=app, placement=placement).get((app, placement))

    def models_in_service(
        self, *, app: str | None = None, placement: str | None = None
    ) -> dict[tuple[str, str], int]:
        """Return the versions in service, by application and placement."""
        model, promotion = schema.model, tables.promotion
        newest = sa.select(model.c.app, model.c.placement, sa.func.max(model.c.version)).group_by(
            model.c.app, model.c.placement
        )
        # If the promoted version was deleted, the one promoted before it is in service again.
        promoted = (
            sa.select(promotion.c.app, promotion.c.placement, promotion.c.version)
            .join(
                model,
                sa.and_(
                    model.c.app == promotion.c.app,
                    model.c.placement == promotion.c.placement,
                    model.c.version == promotion.c.version,
                ),
            )
            .order_by(promotion.c.id)
        )
        if app is not None:
            newest = newest.where(model.c.app == app)
            promoted = promoted.where(promotion.c.app == app)
        if placement is not None:
            newest = newest.where(model.c.placement == placement)
            promoted = promoted.where(promotion.c.placement == placement)
        with self._reading() as connection:
            versions = {(a, p): version for a, p, version in connection.execute(newest)}
            versions |= {
                (a, p): version
                for a, p, version in connection.execute(promoted)
                if (a, p) in versions
            }
        return versions


def acknowledge(connection: sa.Connection, sequences: Mapping[str, int]) -> None:
    """Raise nodes' acknowledged sequence numbers, within the caller's transaction."""
    table = tables.delivery
    statement = insert(connection, table)
    new = statement.excluded
    connection.execute(
        statement.on_conflict_do_update(
            index_elements=["node_id"],
            set_={"sequence": new.sequence},
            where=table.c.sequence < new.sequence,
        ),
        [{"node_id": node, "sequence": number} for node, number in sorted(sequences.items())],
    )


def _put_assignment(connection: sa.Connection, noted: Noted, assignment: Resident) -> Resident:
    table = tables.assignment
    values = asdict(assignment) | {"placement": assignment.placement or ""}
    statement = insert(connection, table).values(**values)
    new, current = statement.excluded, table.c
    not_extended = sa.or_(
        current.expires_at.is_(None),
        current.expires_at <= sa.func.coalesce(new.expires_at, current.expires_at),
    )
    moves_forward = sa.or_(
        (current.state == "reserved") & ((new.state != "expired") | not_extended),
        (current.state == "bound") & new.state.in_(("bound", "released")),
        (current.state == "expired") & (new.state != "expired"),
    )
    forward = statement.on_conflict_do_update(
        index_elements=["assignment_id"],
        set_={name: new[name] for name in values if name != "assignment_id"},
        where=(current.app == new.app) & (current.node_id == new.node_id) & moves_forward,
    )
    if wrote(connection, forward, current.assignment_id):
        noted.note("assignment", assignment.node_id, assignment.assignment_id)
    query = sa.select(table).where(current.assignment_id == assignment.assignment_id)
    stored = _assignment(connection.execute(query).one())
    if (stored.app, stored.node_id) != (assignment.app, assignment.node_id):
        raise ConflictError(
            f"belongs to {stored.app} on {stored.node_id}.",
            field="assignment_id",
            value=assignment.assignment_id,
            hint="Choose another id for another assignment.",
        )
    return stored


def _assignment(row: sa.Row[Any]) -> Resident:
    assignment = Resident(**{**row._mapping, "placement": row.placement or None})
    times = (
        assignment.reserved_at,
        assignment.bound_at,
        assignment.ended_at,
        assignment.expires_at,
    )
    numbers = (assignment.domain, assignment.memory_bytes, *(t for t in times if t is not None))
    if not all(isinstance(number, float | int) for number in numbers):
        raise StoreError(
            f"The assignment {assignment.assignment_id!r} has times or sizes that are no numbers.",
            hint="Restore the store from a copy.",
        )
    return assignment
