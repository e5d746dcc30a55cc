"""Placements, agents and the models in service: what servers on one store agree on."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import sqlalchemy as sa

from kongming.errors import ConflictError, InputError, UnknownNameError
from kongming.store import schema
from kongming.store import service_schema as tables
from kongming.store.feed import Feed, Noted
from kongming.store.service_entries import (
    ACTIVE,
    STATES,
    Promotion,
    StoredAgent,
    StoredPlacement,
)
from kongming.store.writing import batches, insert, wrote


class ServiceRecords(Feed):
    """The part of the store that holds what runs where, who reports, and which model answers."""

    # -- placements ----------------------------------------------------------------------------

    def put_placement(self, placement: StoredPlacement) -> StoredPlacement:
        """Keep a placement, and return what is held then.

        Two servers may decide about one at the same moment; what is held only moves forward, so
        that the later answer does not undo the earlier one: a bound placement is released but
        never reserved again or expired, a released one stays as it is, and one whose reservation
        was prolonged does not expire at the older time. An expired one may be bound: it runs.

        Raises:
            ConflictError: the id is that of another application or node.
            InputError: an unknown state.
        """
        return self.put_placements([placement])[0]

    def put_placements(self, placements: Sequence[StoredPlacement]) -> list[StoredPlacement]:
        """As ``put_placement`` for many: all of them or, on an error, none."""
        for placement in placements:
            if placement.state not in STATES:
                raise InputError(
                    "is unknown.", field="state", found=placement.state, allowed=", ".join(STATES)
                )
        with self._changing() as (connection, noted):
            held = {
                # In one order everywhere, so that two writers never wait for each other.
                placement.placement_id: _put_placement(connection, noted, placement)
                for placement in sorted(placements, key=lambda one: one.placement_id)
            }
        return [held[placement.placement_id] for placement in placements]

    def placement(self, placement_id: str) -> StoredPlacement | None:
        table = tables.placement
        query = sa.select(table).where(table.c.placement_id == placement_id)
        with self._reading() as connection:
            row = connection.execute(query).one_or_none()
        return None if row is None else _placement(row)

    def placements(
        self,
        *,
        active: bool | None = None,
        node_id: str | None = None,
        limit: int | None = None,
    ) -> list[StoredPlacement]:
        """Placements, newest first: only those that are (or are not) active where it is given."""
        table = tables.placement
        query = sa.select(table)
        if active is not None:
            chosen = table.c.state.in_(ACTIVE)
            query = query.where(chosen if active else ~chosen)
        if node_id is not None:
            query = query.where(table.c.node_id == node_id)
        began = sa.func.coalesce(table.c.bound_at, table.c.reserved_at)
        query = query.order_by(began.desc(), table.c.placement_id).limit(limit)
        with self._reading() as connection:
            return [_placement(row) for row in connection.execute(query)]

    # -- agents --------------------------------------------------------------------------------

    def put_agent(
        self, node_id: str, document: Mapping[str, Any], seen_at: float | None = None
    ) -> None:
        """Keep what an agent said of itself, in place of what it said before."""
        self.put_agents({node_id: (document, time.time() if seen_at is None else seen_at)})

    def put_agents(self, agents: Mapping[str, tuple[Mapping[str, Any], float]]) -> None:
        """As ``put_agent`` for many, by node: the document, and when the agent was seen."""
        if not agents:
            return
        with self._changing() as (connection, noted):
            statement = insert(connection, tables.agent)
            new = statement.excluded
            connection.execute(
                statement.on_conflict_do_update(
                    index_elements=["node_id"],
                    set_={"seen_at": new.seen_at, "document": new.document},
                ),
                [
                    {"node_id": node_id, "seen_at": at, "document": dict(document)}
                    for node_id, (document, at) in sorted(agents.items())
                ],
            )
            for node_id in sorted(agents):
                noted.note("node", node_id, node_id)

    def agents_seen(self, seen_at: Mapping[str, float]) -> None:
        """When agents last said that they live, by node: many heartbeats in one transaction.

        Unknown agents are left out; an earlier time than the one that is held changes nothing.
        No change is noted: heartbeats are too many.
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
        """All agents, or those of these nodes that are held; by node."""
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
        found = (StoredAgent(row.node_id, row.document, row.seen_at) for row in rows)
        return sorted(found, key=lambda agent: agent.node_id)

    def acknowledged(self, node_id: str) -> int:
        """The highest sequence number of this node that is committed; 0 for none."""
        table = tables.delivery
        with self._reading() as connection:
            query = sa.select(table.c.sequence).where(table.c.node_id == node_id)
            return connection.scalar(query) or 0

    def acknowledge(self, node_id: str, sequence: int) -> None:
        """Raise the acknowledged number of a node; a lower one changes nothing."""
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

    def promotions(self, app: str, placement: str) -> list[Promotion]:
        """What went into service and when, newest first."""
        table = tables.promotion
        query = (
            sa.select(*(column for column in table.c if column.name != "id"))
            .where(table.c.app == app, table.c.placement == placement)
            .order_by(table.c.id.desc())
        )
        with self._reading() as connection:
            return [Promotion(*row) for row in connection.execute(query)]

    def in_service(self, app: str, placement: str) -> int | None:
        """The version that answers: the one promoted last, else the newest; None without any."""
        return self.models_in_service(app=app, placement=placement).get((app, placement))

    def models_in_service(
        self, *, app: str | None = None, placement: str | None = None
    ) -> dict[tuple[str, str], int]:
        """The version that answers, by application and placement."""
        model, promotion = schema.model, tables.promotion
        newest = sa.select(model.c.app, model.c.placement, sa.func.max(model.c.version)).group_by(
            model.c.app, model.c.placement
        )
        # A version that was deleted does not answer: then the one before it does again.
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
            chosen = {(a, p): version for a, p, version in connection.execute(newest)}
            chosen |= {
                (a, p): version
                for a, p, version in connection.execute(promoted)
                if (a, p) in chosen
            }
        return chosen


def acknowledge(connection: sa.Connection, sequences: Mapping[str, int]) -> None:
    """Raise the acknowledged numbers of nodes, inside a transaction of the caller's."""
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


def _put_placement(
    connection: sa.Connection, noted: Noted, placement: StoredPlacement
) -> StoredPlacement:
    table = tables.placement
    values = asdict(placement)
    statement = insert(connection, table).values(**values)
    new, held = statement.excluded, table.c
    not_prolonged = sa.or_(
        held.expires_at.is_(None),
        held.expires_at <= sa.func.coalesce(new.expires_at, held.expires_at),
    )
    moves_forward = sa.or_(
        (held.state == "reserved") & ((new.state != "expired") | not_prolonged),
        (held.state == "bound") & new.state.in_(("bound", "released")),
        (held.state == "expired") & (new.state != "expired"),
    )
    forward = statement.on_conflict_do_update(
        index_elements=["placement_id"],
        set_={name: new[name] for name in values if name != "placement_id"},
        where=(held.app == new.app) & (held.node_id == new.node_id) & moves_forward,
    )
    if wrote(connection, forward, held.placement_id):
        noted.note("placement", placement.node_id, placement.placement_id)
    query = sa.select(table).where(held.placement_id == placement.placement_id)
    found = _placement(connection.execute(query).one())
    if (found.app, found.node_id) != (placement.app, placement.node_id):
        raise ConflictError(
            f"is that of {found.app} on {found.node_id}.",
            field="placement_id",
            found=placement.placement_id,
            hint="Choose another id for another placement.",
        )
    return found


def _placement(row: sa.Row[Any]) -> StoredPlacement:
    return StoredPlacement(**row._mapping)
