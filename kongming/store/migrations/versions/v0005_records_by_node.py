"""Key records by node and id; note which runs were asked for; tokens name their nodes."""

from collections.abc import Iterator

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None

_REFERENCES = (
    ("run", "fingerprint_id"),
    ("run", "before_id"),
    ("run", "after_id"),
    ("signature", "fingerprint_id"),
    ("latest_fingerprint", "fingerprint_id"),
)
"""Columns that hold the primary key of a fingerprint."""


def upgrade() -> None:
    for table in ("run", "signature"):
        # What an older version kept was learnt from, and goes on to be.
        requested: sa.Column[bool] = sa.Column(
            "asked", sa.Boolean(), nullable=False, server_default=sa.true()
        )
        op.add_column(table, requested)
    nodes: sa.Column[list[str]]
    nodes = sa.Column("nodes", sa.JSON(), nullable=False, server_default="[]")
    op.add_column("token", nodes)
    for _ in _without_foreign_keys():
        for table, column in _REFERENCES:
            op.execute(
                f"UPDATE {table} SET {column} = (SELECT length(f.node_id) || ':' || f.node_id "
                f"|| ':' || f.id FROM fingerprint f WHERE f.id = {table}.{column}) "
                f"WHERE {column} IS NOT NULL"
            )
        for table, column in (
            ("fingerprint", "id"),
            ("run", "id"),
            ("signature", "id"),
            ("realised", "run_id"),
        ):
            op.execute(
                f"UPDATE {table} SET {column} = "
                f"length(node_id) || ':' || node_id || ':' || {column}"
            )


def _without_foreign_keys() -> Iterator[None]:
    """Yield once, while keys and what refers to them may disagree."""
    if op.get_bind().dialect.name == "sqlite":
        # Until the commit, when all agree again.
        op.execute("PRAGMA defer_foreign_keys = ON")
        yield
        return
    names = [f"fk_{table}_{column}_fingerprint" for table, column in _REFERENCES]
    for (table, _), name in zip(_REFERENCES, names, strict=True):
        op.drop_constraint(name, table, type_="foreignkey")
    yield
    for (table, column), name in zip(_REFERENCES, names, strict=True):
        op.create_foreign_key(name, table, "fingerprint", [column], ["id"])
