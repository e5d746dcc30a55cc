"""Forecasts and what came of them, operations, and tokens."""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import asdict
from typing import Any

import sqlalchemy as sa

from kongming.errors import InputError
from kongming.store import service_schema as tables
from kongming.store.feed import Feed
from kongming.store.service_entries import (
    StoredForecast,
    StoredOperation,
    StoredRealised,
    StoredToken,
)
from kongming.store.writing import insert, wrote


class ServiceHistory(Feed):
    """The part of the store that remembers what the service said and did."""

    # -- forecasts and finished runs -----------------------------------------------------------

    def add_forecast(self, forecast: StoredForecast) -> None:
        """Keep what was predicted for a placement, in place of an earlier forecast."""
        self._put(tables.forecast, "placement_id", forecast)

    def forecast(self, placement_id: str) -> StoredForecast | None:
        table = tables.forecast
        query = sa.select(table).where(table.c.placement_id == placement_id)
        with self._reading() as connection:
            row = connection.execute(query).one_or_none()
        return None if row is None else StoredForecast(**row._mapping)

    def add_realised(self, realised: StoredRealised) -> bool:
        """Keep a finished run beside its prediction; False where the run was known already.

        Raises:
            InputError: a number that cannot be true.
        """
        for name in ("predicted", "measured"):
            value = getattr(realised, name)
            if not 0.0 < value < math.inf:
                raise InputError(
                    "cannot be true.", field=name, found=value, allowed="a finite number above 0"
                )
        with self._writing() as connection:
            statement = insert(connection, tables.realised).values(**asdict(realised))
            new = statement.on_conflict_do_nothing(index_elements=["run_id"])
            return wrote(connection, new, tables.realised.c.run_id)

    def realised(
        self, app: str | None = None, placement: str | None = None, limit: int | None = None
    ) -> list[StoredRealised]:
        """Finished runs beside what was predicted for them, newest first."""
        table = tables.realised
        query = sa.select(table).order_by(table.c.ended_at.desc(), table.c.run_id).limit(limit)
        if app is not None:
            query = query.where(table.c.app == app)
        if placement is not None:
            query = query.where(table.c.placement == placement)
        with self._reading() as connection:
            return [StoredRealised(**row._mapping) for row in connection.execute(query)]

    # -- operations ----------------------------------------------------------------------------

    def put_operation(self, operation: StoredOperation) -> None:
        """Keep an operation as it is now, in place of what it was."""
        self._put(tables.operation, "id", operation)

    def operation(self, operation_id: str) -> StoredOperation | None:
        table = tables.operation
        with self._reading() as connection:
            row = connection.execute(sa.select(table).where(table.c.id == operation_id))
            found = row.one_or_none()
        return None if found is None else StoredOperation(**found._mapping)

    def operations(
        self,
        *,
        kind: str | None = None,
        states: Collection[str] | None = None,
        limit: int | None = None,
    ) -> list[StoredOperation]:
        """Operations, newest first: those of ``kind`` and in one of ``states`` where given."""
        table = tables.operation
        query = sa.select(table).order_by(table.c.created_at.desc(), table.c.id).limit(limit)
        if kind is not None:
            query = query.where(table.c.kind == kind)
        if states is not None:
            query = query.where(table.c.state.in_(list(states)))
        with self._reading() as connection:
            return [StoredOperation(**row._mapping) for row in connection.execute(query)]

    # -- tokens --------------------------------------------------------------------------------

    def add_token(self, token: StoredToken) -> None:
        """Raises InputError where the id is taken."""
        with self._writing() as connection:
            statement = insert(connection, tables.token).values(**asdict(token))
            new = statement.on_conflict_do_nothing(index_elements=["id"])
            if not wrote(connection, new, tables.token.c.id):
                raise InputError("is taken.", field="id", found=token.id)

    def token(self, token_id: str) -> StoredToken | None:
        """The token of this id, revoked and expired ones included."""
        with self._reading() as connection:
            query = sa.select(tables.token).where(tables.token.c.id == token_id)
            row = connection.execute(query).one_or_none()
        return None if row is None else StoredToken(**row._mapping)

    def tokens(self) -> list[StoredToken]:
        """All tokens, oldest first, revoked and expired ones included."""
        table = tables.token
        with self._reading() as connection:
            rows = connection.execute(sa.select(table).order_by(table.c.created_at, table.c.id))
            return [StoredToken(**row._mapping) for row in rows]

    def revoke_token(self, token_id: str, at: float) -> bool:
        """False where there is no such token, or it was revoked before."""
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
