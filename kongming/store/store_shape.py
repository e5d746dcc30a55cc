"""Refusal of SQLite files that are no store, whatever they say: a file may come from anywhere.

A trigger would change what is written, a view or a generated column compute what is read, from
then on.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

import sqlalchemy as sa

from kongming.records.errors import StoreError
from kongming.store.schema import metadata

__all__ = ["refuse_computed", "refuse_incomplete"]

_MOST_CHANGES = 1 << 62
"""Numbers of the change feed are 64 bits; some are to be left."""

_ACTIONS = re.compile(r"\b(?:CHECK|CONFLICT|CASCADE|SET)\b", re.IGNORECASE)
"""Words of SQL that no table of ours was ever made with: those of constraints that delete or change
other rows than a statement names, or compute something for each that is written."""

_HINT = "Restore it from a copy that you trust, or name another with --store or KONGMING_STORE."


def refuse_computed(connection: sa.Connection) -> None:
    """Check that nothing runs but the statements of this program, at any revision.

    Views by other names are of no consequence: an operator may have some for reports.

    Raises:
        StoreError: the file has a trigger, a view or virtual table in the place of a table, or a
            generated column or a constraint that acts in one.
    """
    objects = connection.exec_driver_sql(
        "SELECT type, name, rootpage, sql FROM sqlite_master"
        " WHERE type IN ('trigger', 'view', 'table')"
    )
    for kind, name, page, sql in objects:
        is_ours = str(name).lower() in metadata.tables
        if kind == "trigger" or (is_ours and (kind == "view" or page == 0)):
            what = "virtual table" if kind == "table" else kind
            raise _refused(connection, f"has a {what} {name!r}, which KONGMING did not create")
        if is_ours and (action := _ACTIONS.search(str(sql))):
            raise _refused(
                connection,
                f"has a constraint on {name!r} ({action[0]}), which KONGMING did not create",
            )
    for table, column, hidden in _columns(connection):
        if hidden and table.lower() in metadata.tables:
            raise _refused(connection, f"computes the column {column!r} of {table!r}")


def _columns(connection: sa.Connection) -> Iterable[tuple[str, str, int]]:
    """Yield table, column, and whether that is generated. Tables of modules, which an operator may
    have and this program not, are left out: to ask for their columns would fail."""
    return (
        (table, column, hidden)
        for table, column, hidden in connection.exec_driver_sql(
            "SELECT m.name, x.name, x.hidden"
            " FROM (SELECT name FROM sqlite_master WHERE type = 'table' AND rootpage > 0) AS m"
            " JOIN pragma_table_xinfo(m.name) AS x"
        )
    )


def refuse_incomplete(connection: sa.Connection) -> None:
    """Check that a store of the newest revision has its tables, with their columns alone.

    Raises:
        StoreError: it has not.
    """
    columns: dict[str, set[str]] = {}
    for name, column, _ in _columns(connection):
        columns.setdefault(name, set()).add(column)
    for name, table in metadata.tables.items():
        if name not in columns:
            raise _refused(connection, f"lacks the table {name!r}")
        expected = {column.name for column in table.columns}
        if different := sorted(expected ^ columns[name]):
            raise _refused(connection, f"has other columns than {name!r} has: {different[0]!r}")
    rows = connection.exec_driver_sql(
        "SELECT typeof(last) = 'integer' AND typeof(trimmed) = 'integer'"
        f" AND last BETWEEN 0 AND {_MOST_CHANGES} AND trimmed BETWEEN 0 AND last FROM feed LIMIT 2"
    ).all()
    if [tuple(row) for row in rows] != [(1,)]:
        raise _refused(connection, "has lost count of its changes (table 'feed')")


def _refused(connection: sa.Connection, what: str) -> StoreError:
    return StoreError(f"The store {connection.engine.url.database} {what}.", hint=_HINT)
