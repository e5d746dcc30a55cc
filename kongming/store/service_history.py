"""Forecasts and measured outcomes, operations, and tokens."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import asdict
from typing import Any

import sqlalchemy as sa

from kongming.records.errors import InputError, StoreError
from kongming.records.quantity import LARGEST, is_quantity
from kongming.store import service_schema as tables
from kongming.store.feed import Feed
from kongming.store.row_ids import record_id, row_id
from kongming.store.service_entries import (
    StoredForecast,
    StoredOperation,
    StoredRealised,
    StoredToken,
)
from kongming.store.writing import insert, wrote

_LOOKED_AT = 100
"""How many times the runs that are returned are looked at for those of every node."""


class ServiceHistory(Feed):
    """Store methods for forecasts, finished runs, operations and tokens."""

    # -- forecasts and finished runs -----------------------------------------------------------

    def add_forecast(self, forecast: StoredForecast) -> None:
        """Store the forecast for an assignment; replaces an earlier one."""
        self._put(tables.forecast, "assignment_id", forecast)

    def forecast(self, assignment_id: str) -> StoredForecast | None:
        """Return the forecast for an assignment, or None."""
        table = tables.forecast
        query = sa.select(table).where(table.c.assignment_id == assignment_id)
        with self._reading() as connection:
            row = connection.execute(query).one_or_none()
        return None if row is None else StoredForecast(**row._mapping)

    def add_realised(self, realised: StoredRealised) -> bool:
        """Store a finished run with its prediction; return False if the run is already stored.

        Raises:
            InputError: a value that is not plausible.
        """
        _check_plausible(realised)
        with self._writing() as connection:
            return _add_realised(connection, realised)

    def realise(self, realised: StoredRealised) -> bool:
        """Store a finished run with the prediction of its assignment, whose forecast is used up by
        that; return False if it was before, so that there is one comparison for each assignment.

        Raises:
            InputError: a value that is not plausible.
        """
        _check_plausible(realised)
        forecast = tables.forecast
        mine = forecast.c.assignment_id == realised.assignment_id
        with self._writing() as connection:
            # First, for its lock: of two runs at once, the later one waits and finds nothing.
            if not connection.execute(sa.delete(forecast).where(mine)).rowcount:
                return False
            return _add_realised(connection, realised)

    def realised(
        self, app: str | None = None, placement: str | None = None, limit: int | None = None
    ) -> list[StoredRealised]:
        """Return finished runs with their predictions, newest first."""
        table = tables.realised
        query = sa.select(table).order_by(table.c.ended_at.desc(), table.c.run_id).limit(limit)
        if app is not None:
            query = query.where(table.c.app == app)
        if placement is not None:
            query = query.where(table.c.placement == placement)
        return self._realised(query)

    def realised_by_node(self, app: str, placement: str, limit: int) -> list[StoredRealised]:
        """Return the newest finished runs of every node, as many of each as there is room for in
        ``limit``, newest first; of the newest hundred times as many."""
        table = tables.realised
        newest = (
            sa.select(table)
            .where(table.c.app == app, table.c.placement == placement)
            .order_by(table.c.ended_at.desc(), table.c.run_id)
            .limit(_LOOKED_AT * limit)
            .subquery()
        )
        place = sa.func.row_number().over(
            partition_by=newest.c.node_id, order_by=(newest.c.ended_at.desc(), newest.c.run_id)
        )
        placed = sa.select(newest, place.label("place")).subquery()
        fair = (
            sa.select(placed)
            .order_by(placed.c.place, placed.c.ended_at.desc(), placed.c.run_id)
            .limit(limit)
            .subquery()
        )
        columns = [fair.c[column.name] for column in table.columns]
        return self._realised(sa.select(*columns).order_by(fair.c.ended_at.desc(), fair.c.run_id))

    def _realised(self, query: sa.Select[Any]) -> list[StoredRealised]:
        with self._reading() as connection:
            rows = connection.execute(query).mappings().all()
        return [
            StoredRealised(**(dict(row) | {"run_id": record_id(row["run_id"])})) for row in rows
        ]

    # -- operations ----------------------------------------------------------------------------

    def put_operation(self, operation: StoredOperation) -> None:
        """Insert or replace an operation."""
        self._put(tables.operation, "id", operation)

    def operation(self, operation_id: str) -> StoredOperation | None:
        """Return the operation of this id, or None."""
        table = tables.operation
        with self._reading() as connection:
            query = sa.select(table).where(table.c.id == operation_id)
            row = connection.execute(query).one_or_none()
        return None if row is None else StoredOperation(**row._mapping)

    def operations(
        self,
        *,
        kind: str | None = None,
        states: Collection[str] | None = None,
        ids: Collection[str] | None = None,
        limit: int | None = None,
    ) -> list[StoredOperation]:
        """Return operations, newest first; optionally of one ``kind``, in given ``states``, of
        these ``ids``."""
        table = tables.operation
        query = sa.select(table).order_by(table.c.created_at.desc(), table.c.id).limit(limit)
        if kind is not None:
            query = query.where(table.c.kind == kind)
        if states is not None:
            query = query.where(table.c.state.in_(list(states)))
        if ids is not None:
            query = query.where(table.c.id.in_(list(ids)))
        with self._reading() as connection:
            return [StoredOperation(**row._mapping) for row in connection.execute(query)]

    # -- tokens --------------------------------------------------------------------------------

    def add_token(self, token: StoredToken) -> None:
        """Store a new token. Raises InputError if the id is taken."""
        with self._writing() as connection:
            statement = insert(connection, tables.token).values(**asdict(token))
            new = statement.on_conflict_do_nothing(index_elements=["id"])
            if not wrote(connection, new, tables.token.c.id):
                raise InputError("is taken.", field="id", value=token.id)

    def token(self, token_id: str) -> StoredToken | None:
        """Return the token of this id, even if revoked or expired; None if there is none."""
        with self._reading() as connection:
            query = sa.select(tables.token).where(tables.token.c.id == token_id)
            row = connection.execute(query).one_or_none()
        return None if row is None else _token(row)

    def tokens(self) -> list[StoredToken]:
        """Return all tokens, oldest first, including revoked and expired ones."""
        table = tables.token
        with self._reading() as connection:
            rows = connection.execute(sa.select(table).order_by(table.c.created_at, table.c.id))
            # None is left out: one that is damaged may be what revoked a certificate.
            return [_token(row) for row in rows]

    def revoke_token(self, token_id: str, at: float) -> bool:
        """Revoke a token; return False if it does not exist or was already revoked."""
        table = tables.token
        with self._writing() as connection:
            written = connection.execute(
                sa.update(table)
                .where(table.c.id == token_id, table.c.revoked_at.is_(None))
                .values(revoked_at=at)
            )
            return written.rowcount > 0

    def _put(self, table: sa.Table, key: str, record: Any) -> None:
        values = asdict(record)
        with self._writing() as connection:
            statement = insert(connection, table).values(**values)
            connection.execute(
                statement.on_conflict_do_update(
                    index_elements=[key],
                    set_={name: statement.excluded[name] for name in values if name != key},
                )
            )


def _check_plausible(realised: StoredRealised) -> None:
    for name in ("predicted", "measured"):
        value = getattr(realised, name)
        if value <= 0.0 or not is_quantity(value):
            raise InputError(
                "is implausible.",
                field=name,
                value=value,
                allowed=f"{1 / LARGEST:g} to {LARGEST:g}",
            )


def _add_realised(connection: sa.Connection, realised: StoredRealised) -> bool:
    key = row_id(realised.node_id, realised.run_id)
    values = asdict(realised) | {"run_id": key}
    statement = insert(connection, tables.realised).values(**values)
    new = statement.on_conflict_do_nothing(index_elements=["run_id"])
    return wrote(connection, new, tables.realised.c.run_id)


def _token(row: sa.Row[Any]) -> StoredToken:
    token = StoredToken(**(dict(row._mapping) | {"nodes": tuple(map(str, row.nodes))}))
    times = (token.created_at, token.expires_at, token.revoked_at)
    if not all(time is None or isinstance(time, float | int) for time in times):
        raise StoreError(
            f"The store has a token {token.id!r} whose times cannot be read.",
            hint="Restore it from a copy.",
        )
    return token
