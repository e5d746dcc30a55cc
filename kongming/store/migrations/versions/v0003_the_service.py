"""Add the tables of the service; store shared content of fingerprints once."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("node", sa.Column("facts", sa.String(), nullable=True))
    # A node's history is queried by purpose; the suite version is rarely selective.
    op.drop_index("ix_fingerprint_node_id_suite_version_purpose_started_at", "fingerprint")
    op.create_index(
        "ix_fingerprint_node_id_purpose_started_at",
        "fingerprint",
        ["node_id", "purpose", "started_at"],
    )
    op.create_table(
        "part",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("document", sa.JSON(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_part"),
    )
    _fingerprints()
    _nodes()
    _predictions()
    _access_and_changes()


def _fingerprints() -> None:
    op.create_table(
        "latest_fingerprint",
        sa.Column("node_id", sa.String(), nullable=False),
        sa.Column("cpu", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("started_at", sa.DateTime(), nullable=False),
        sa.Column("fingerprint_id", sa.String(), nullable=False),
        sa.ForeignKeyConstraint(
            ["fingerprint_id"],
            ["fingerprint.id"],
            name="fk_latest_fingerprint_fingerprint_id_fingerprint",
        ),
        sa.PrimaryKeyConstraint("node_id", "cpu", name="pk_latest_fingerprint"),
    )
    op.create_index(
        "ix_latest_fingerprint_fingerprint_id", "latest_fingerprint", ["fingerprint_id"]
    )
    op.create_table(
        "fingerprint_hour",
        sa.Column("node_id", sa.String(), nullable=False),
        sa.Column("hour_at", sa.DateTime(), nullable=False),
        sa.Column("cpu", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("suite_version", sa.String(), nullable=False),
        sa.Column("count", sa.Integer(), nullable=False),
        sa.Column("document", sa.JSON(), nullable=False),
        sa.PrimaryKeyConstraint(
            "node_id", "hour_at", "cpu", "suite_version", name="pk_fingerprint_hour"
        ),
    )


def _nodes() -> None:
    op.create_table(
        "agent",
        sa.Column("node_id", sa.String(), nullable=False),
        sa.Column("seen_at", sa.Double(), nullable=False),
        sa.Column("document", sa.JSON(), nullable=False),
        sa.PrimaryKeyConstraint("node_id", name="pk_agent"),
    )
    op.create_table(
        "delivery",
        sa.Column("node_id", sa.String(), nullable=False),
        sa.Column("sequence", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("node_id", name="pk_delivery"),
    )
    op.create_table(
        "placement",
        sa.Column("placement_id", sa.String(), nullable=False),
        sa.Column("app", sa.String(), nullable=False),
        sa.Column("node_id", sa.String(), nullable=False),
        sa.Column("domain", sa.Integer(), nullable=False),
        sa.Column("placement", sa.String(), nullable=False),
        sa.Column("state", sa.String(), nullable=False),
        sa.Column("reserved_at", sa.Double(), nullable=True),
        sa.Column("bound_at", sa.Double(), nullable=True),
        sa.Column("ended_at", sa.Double(), nullable=True),
        sa.Column("expires_at", sa.Double(), nullable=True),
        sa.Column("memory_bytes", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("placement_id", name="pk_placement"),
    )
    op.create_index("ix_placement_node_id_state", "placement", ["node_id", "state"])
    op.create_index("ix_placement_state_ended_at", "placement", ["state", "ended_at"])


def _predictions() -> None:
    op.create_table(
        "promotion",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("app", sa.String(), nullable=False),
        sa.Column("placement", sa.String(), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("reason", sa.String(), nullable=False),
        sa.Column("promoted_at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_promotion"),
    )
    op.create_index("ix_promotion_app_placement_id", "promotion", ["app", "placement", "id"])
    op.create_table(
        "forecast",
        sa.Column("placement_id", sa.String(), nullable=False),
        sa.Column("app", sa.String(), nullable=False),
        sa.Column("node_id", sa.String(), nullable=False),
        sa.Column("placement", sa.String(), nullable=False),
        sa.Column("model_version", sa.Integer(), nullable=False),
        sa.Column("made_at", sa.Double(), nullable=False),
        sa.Column("document", sa.JSON(), nullable=False),
        sa.PrimaryKeyConstraint("placement_id", name="pk_forecast"),
    )
    op.create_index("ix_forecast_made_at", "forecast", ["made_at"])
    op.create_table(
        "realised",
        sa.Column("run_id", sa.String(), nullable=False),
        sa.Column("placement_id", sa.String(), nullable=False),
        sa.Column("app", sa.String(), nullable=False),
        sa.Column("placement", sa.String(), nullable=False),
        sa.Column("node_id", sa.String(), nullable=False),
        sa.Column("model_version", sa.Integer(), nullable=False),
        sa.Column("ended_at", sa.Double(), nullable=False),
        sa.Column("predicted", sa.Double(), nullable=False),
        sa.Column("lower", sa.Double(), nullable=False),
        sa.Column("upper", sa.Double(), nullable=False),
        sa.Column("level", sa.Double(), nullable=False),
        sa.Column("measured", sa.Double(), nullable=False),
        sa.Column("metric_unit", sa.String(), nullable=False),
        sa.PrimaryKeyConstraint("run_id", name="pk_realised"),
    )
    op.create_index(
        "ix_realised_app_placement_ended_at", "realised", ["app", "placement", "ended_at"]
    )
    op.create_table(
        "operation",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("state", sa.String(), nullable=False),
        sa.Column("progress", sa.Double(), nullable=False),
        sa.Column("message", sa.String(), nullable=False),
        sa.Column("owner", sa.String(), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("started_at", sa.Double(), nullable=True),
        sa.Column("ended_at", sa.Double(), nullable=True),
        sa.Column("document", sa.JSON(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_operation"),
    )
    op.create_index("ix_operation_created_at", "operation", ["created_at"])


def _access_and_changes() -> None:
    op.create_table(
        "token",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("role", sa.String(), nullable=False),
        sa.Column("secret_hash", sa.String(), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("expires_at", sa.Double(), nullable=True),
        sa.Column("revoked_at", sa.Double(), nullable=True),
        sa.Column("subject", sa.String(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_token"),
    )
    feed = op.create_table(
        "feed",
        sa.Column("id", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("last", sa.BigInteger(), nullable=False),
        sa.Column("trimmed", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_feed"),
    )
    op.bulk_insert(feed, [{"id": 1, "last": 0, "trimmed": 0}])
    op.create_table(
        "change",
        sa.Column("sequence", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("owner", sa.String(), nullable=False),
        sa.Column("key", sa.String(), nullable=False),
        sa.Column("origin", sa.String(), nullable=False),
        sa.Column("changed_at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("sequence", name="pk_change"),
    )
