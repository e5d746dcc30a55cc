"""Add the fingerprint taken right after a run."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    # SQLite cannot add a constraint to a table: there the table is rebuilt.
    with op.batch_alter_table("run") as table:
        table.add_column(sa.Column("after_id", sa.String(), nullable=True))
        table.create_foreign_key("fk_run_after_id_fingerprint", "fingerprint", ["after_id"], ["id"])
        table.create_index("ix_run_after_id", ["after_id"], unique=False)
