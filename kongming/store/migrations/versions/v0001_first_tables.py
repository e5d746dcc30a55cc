"""Create the initial tables."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "application",
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("identity", sa.String(), nullable=False),
        sa.Column("put_at", sa.DateTime(), nullable=False),
        sa.Column("document", sa.JSON(), nullable=False),
        sa.PrimaryKeyConstraint("name", "identity", name="pk_application"),
    )
    op.create_table(
        "campaign",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("key", sa.String(), nullable=False),
        sa.Column("opened_at", sa.DateTime(), nullable=False),
        sa.Column("finished_at", sa.DateTime(), nullable=True),
        sa.Column("document", sa.JSON(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_campaign"),
    )
    op.create_index(
        "uq_campaign_under_way",
        "campaign",
        ["key"],
        unique=True,
        sqlite_where=sa.text("finished_at IS NULL"),
        postgresql_where=sa.text("finished_at IS NULL"),
    )
    op.create_table(
        "model",
        sa.Column("app", sa.String(), nullable=False),
        sa.Column("placement", sa.String(), nullable=False),
        sa.Column("version", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("identity", sa.String(), nullable=False),
        sa.Column("node_id", sa.String(), nullable=False),
        sa.Column("trained_at", sa.DateTime(), nullable=False),
        sa.Column("document", sa.JSON(), nullable=False),
        sa.PrimaryKeyConstraint("app", "placement", "version", name="pk_model"),
    )
    op.create_table(
        "node",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("seen_at", sa.DateTime(), nullable=False),
        sa.Column("document", sa.JSON(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_node"),
    )
    op.create_table(
        "reference",
        sa.Column("node_id", sa.String(), nullable=False),
        sa.Column("suite_version", sa.String(), nullable=False),
        sa.Column("cpu", sa.Integer(), nullable=False),
        sa.Column("taken_at", sa.DateTime(), nullable=False),
        sa.Column("document", sa.JSON(), nullable=False),
        sa.PrimaryKeyConstraint("node_id", "suite_version", "cpu", name="pk_reference"),
    )
    op.create_table(
        "fingerprint",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("node_id", sa.String(), nullable=False),
        sa.Column("suite_version", sa.String(), nullable=False),
        sa.Column("purpose", sa.String(), nullable=False),
        sa.Column("cpu", sa.Integer(), nullable=False),
        sa.Column("started_at", sa.DateTime(), nullable=False),
        sa.Column("document", sa.JSON(), nullable=False),
        sa.ForeignKeyConstraint(["node_id"], ["node.id"], name="fk_fingerprint_node_id_node"),
        sa.PrimaryKeyConstraint("id", name="pk_fingerprint"),
    )
    op.create_index(
        "ix_fingerprint_node_id_suite_version_purpose_started_at",
        "fingerprint",
        ["node_id", "suite_version", "purpose", "started_at"],
        unique=False,
    )
    op.create_index("ix_fingerprint_started_at", "fingerprint", ["started_at"], unique=False)
    op.create_table(
        "run",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("app", sa.String(), nullable=False),
        sa.Column("identity", sa.String(), nullable=False),
        sa.Column("node_id", sa.String(), nullable=False),
        sa.Column("placement", sa.String(), nullable=False),
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("ok", sa.Boolean(), nullable=False),
        sa.Column("campaign", sa.String(), nullable=False),
        sa.Column("step", sa.Integer(), nullable=False),
        sa.Column("metric_unit", sa.String(), nullable=False),
        sa.Column("started_at", sa.DateTime(), nullable=False),
        sa.Column("fingerprint_id", sa.String(), nullable=True),
        sa.Column("before_id", sa.String(), nullable=True),
        sa.Column("document", sa.JSON(), nullable=False),
        sa.ForeignKeyConstraint(
            ["before_id"], ["fingerprint.id"], name="fk_run_before_id_fingerprint"
        ),
        sa.ForeignKeyConstraint(
            ["fingerprint_id"], ["fingerprint.id"], name="fk_run_fingerprint_id_fingerprint"
        ),
        sa.PrimaryKeyConstraint("id", name="pk_run"),
    )
    op.create_index(
        "ix_run_app_identity_node_id_placement_started_at",
        "run",
        ["app", "identity", "node_id", "placement", "started_at"],
        unique=False,
    )
    op.create_index("ix_run_before_id", "run", ["before_id"], unique=False)
    op.create_index("ix_run_campaign_step", "run", ["campaign", "step"], unique=False)
    op.create_index("ix_run_fingerprint_id", "run", ["fingerprint_id"], unique=False)
    op.create_index("ix_run_started_at", "run", ["started_at"], unique=False)
    op.create_table(
        "signature",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("app", sa.String(), nullable=False),
        sa.Column("identity", sa.String(), nullable=False),
        sa.Column("node_id", sa.String(), nullable=False),
        sa.Column("placement", sa.String(), nullable=False),
        sa.Column("campaign", sa.String(), nullable=False),
        sa.Column("step", sa.Integer(), nullable=False),
        sa.Column("started_at", sa.DateTime(), nullable=False),
        sa.Column("fingerprint_id", sa.String(), nullable=False),
        sa.Column("document", sa.JSON(), nullable=False),
        sa.ForeignKeyConstraint(
            ["fingerprint_id"], ["fingerprint.id"], name="fk_signature_fingerprint_id_fingerprint"
        ),
        sa.PrimaryKeyConstraint("id", name="pk_signature"),
    )
    op.create_index(
        "ix_signature_app_identity_node_id_placement_started_at",
        "signature",
        ["app", "identity", "node_id", "placement", "started_at"],
        unique=False,
    )
    op.create_index("ix_signature_campaign_step", "signature", ["campaign", "step"], unique=False)
    op.create_index("ix_signature_fingerprint_id", "signature", ["fingerprint_id"], unique=False)
