"""Trained models, stored as versioned JSON documents (never pickled)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from kongming.records import moments
from kongming.records.errors import InputError, StoreError
from kongming.store import schema
from kongming.store import service_schema as tables
from kongming.store.feed import Feed
from kongming.store.writing import now

SCALE = "scale"
"""Placement of scale models, which describe an idle node without co-located jobs."""

SCALE_PREFIX = "scale:"
"""Prefix of scale model names, so that they do not collide with application names."""

_ATTEMPTS = 5
"""Attempts to get a version number while other writers take the same one."""


@dataclass(frozen=True, slots=True)
class ModelEntry:
    """Entry of the model list. ``trained_at`` is UTC in ISO 8601."""

    app: str
    placement: str
    version: int
    identity: str
    node_id: str
    trained_at: str


class Models(Feed):
    """Store methods for trained models."""

    def put_model(
        self,
        app: str,
        identity: str,
        node_id: str,
        placement: str,
        document: Mapping[str, Any],
    ) -> int:
        """Store a model and return its version, counted from 1 per application and placement. The
        number of a deleted version that was in service is not given again.

        Raises:
            InputError: the document has a value that JSON does not have, such as NaN.
        """
        table = schema.model
        used = self._latest_in_use(app, placement)
        for _ in range(_ATTEMPTS):
            try:
                with self._changing() as (connection, noted):
                    latest = connection.scalar(
                        sa.select(sa.func.max(table.c.version)).where(
                            table.c.app == app, table.c.placement == placement
                        )
                    )
                    version = max(latest or 0, used) + 1
                    connection.execute(
                        sa.insert(table).values(
                            app=app,
                            placement=placement,
                            version=version,
                            identity=identity,
                            node_id=node_id,
                            trained_at=now(),
                            document=dict(document),
                        )
                    )
                    noted.note("model", app, placement)
                    return version
            except (StoreError, InputError) as error:
                # Concurrent writers may have read the same number.
                if not isinstance(error.__cause__, sa.exc.IntegrityError):
                    raise
        raise StoreError(f"Other writers keep storing models of {app}.", hint="Try again.")

    def model(
        self,
        app: str,
        placement: str,
        node_id: str | None = None,
        version: int | None = None,
        identity: str | None = None,
    ) -> dict[str, Any] | None:
        """Return the document of the newest model that matches all filters, or None."""
        table = schema.model
        query = sa.select(table.c.document).where(
            table.c.app == app, table.c.placement == placement
        )
        for column, value in (
            (table.c.node_id, node_id),
            (table.c.version, version),
            (table.c.identity, identity),
        ):
            if value is not None:
                query = query.where(column == value)
        with self._reading() as connection:
            document = connection.scalar(query.order_by(table.c.version.desc()).limit(1))
        return None if document is None else dict(document)

    def models(self, *, app: str | None = None, placement: str | None = None) -> list[ModelEntry]:
        """List models without their documents, by application and placement, newest first.

        Scale models are listed only by their own ``placement``, ``SCALE``.
        """
        table = schema.model
        query = sa.select(*(column for column in table.c if column.name != "document")).order_by(
            table.c.app, table.c.placement, table.c.version.desc()
        )
        if app is not None:
            query = query.where(table.c.app == app)
        column = table.c.placement
        query = query.where(column != SCALE if placement is None else column == placement)
        with self._reading() as connection:
            rows = connection.execute(query).all()
        return list(self._each("a model of", rows, _entry, lambda row: row.app))

    def delete_model(self, app: str, placement: str, version: int | None = None) -> int:
        """Delete one version, or all; return the number of deleted versions."""
        table = schema.model
        query = sa.delete(table).where(table.c.app == app, table.c.placement == placement)
        if version is not None:
            query = query.where(table.c.version == version)
        with self._changing() as (connection, noted):
            deleted = connection.execute(query).rowcount
            if deleted:
                noted.note("model", app, placement)
            return deleted

    def _latest_in_use(self, app: str, placement: str) -> int:
        """The greatest version that was promoted or has predicted something, 0 for none.

        Promotions, forecasts and finished runs outlive a version, and would count for the next of
        its number."""
        with self._reading() as connection:
            versions = [
                connection.scalar(
                    sa.select(sa.func.max(column)).where(
                        table.c.app == app, table.c.placement == placement
                    )
                )
                for table, column in (
                    (tables.promotion, tables.promotion.c.version),
                    (tables.forecast, tables.forecast.c.model_version),
                    (tables.realised, tables.realised.c.model_version),
                )
            ]
        return max(version or 0 for version in versions)


def _entry(row: sa.Row[Any]) -> ModelEntry:
    return ModelEntry(
        app=row.app,
        placement=row.placement,
        version=int(row.version),
        identity=row.identity,
        node_id=row.node_id,
        # Distinguishes models trained within the same second.
        trained_at=moments.format(row.trained_at, "microseconds"),
    )
