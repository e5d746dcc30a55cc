"""Rename jobs on nodes to assignments; a placement is where a neighbour runs."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.drop_index("ix_placement_node_id_state", "placement")
    op.drop_index("ix_placement_state_ended_at", "placement")
    op.rename_table("placement", "assignment")
    for table in ("assignment", "forecast", "realised"):
        # Both databases rename a column in place, so that no row is written again.
        op.execute(f"ALTER TABLE {table} RENAME COLUMN placement_id TO assignment_id")
    if op.get_bind().dialect.name == "postgresql":
        op.execute("ALTER TABLE assignment RENAME CONSTRAINT pk_placement TO pk_assignment")
    op.create_index("ix_assignment_node_id_state", "assignment", ["node_id", "state"])
    op.create_index("ix_assignment_state_ended_at", "assignment", ["state", "ended_at"])
    change = sa.table("change", sa.column("kind"))
    op.execute(change.update().where(change.c.kind == "placement").values(kind="assignment"))
