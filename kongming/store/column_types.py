"""Types of columns that do not fail on what a damaged SQLite file holds.

SQLite keeps any value in any column. An error while a result is fetched would end the query, and
take all other rows with it: what cannot be read becomes None, which no record decodes from.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import sqlite

__all__ = ["MOMENT", "text"]


class _SqliteMoment(sqlite.DATETIME):
    """DATETIME as SQLAlchemy writes it."""

    cache_ok = True

    def result_processor(
        self, dialect: sa.Dialect, coltype: object
    ) -> Callable[[Any], datetime | None]:
        parse = super().result_processor(dialect, coltype)
        assert parse is not None

        def tolerant(value: Any) -> datetime | None:
            try:
                moment: datetime | None = parse(value)
            except (ValueError, TypeError, AttributeError):
                return None
            return moment

        return tolerant


MOMENT = sa.DateTime().with_variant(_SqliteMoment(), "sqlite")  # type: ignore[no-untyped-call]
"""A time in UTC, without its zone."""


def text(content: bytes) -> str:
    """Decode a text of SQLite's, which may be no UTF-8: U+FFFD stands for what is not."""
    return content.decode("utf-8", "replace")
