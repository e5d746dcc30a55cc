"""Tables of the service. Times are unix seconds in UTC.

A change here needs a migration in ``migrations/versions`` and its revision in ``schema.HEAD``.
"""

from __future__ import annotations

import sqlalchemy as sa

from kongming.store.column_types import MOMENT
from kongming.store.schema import metadata

# Newest live fingerprint of each CPU: queried far more often than the history.
latest = sa.Table(
    "latest_fingerprint",
    metadata,
    sa.Column("node_id", sa.String, primary_key=True),
    sa.Column("cpu", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("started_at", MOMENT, nullable=False),
    sa.Column("fingerprint_id", sa.ForeignKey("fingerprint.id"), nullable=False, index=True),
)

fingerprint_hour = sa.Table(
    "fingerprint_hour",
    metadata,
    sa.Column("node_id", sa.String, primary_key=True),
    sa.Column("hour_at", MOMENT, primary_key=True),
    sa.Column("cpu", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("suite_version", sa.String, primary_key=True),
    sa.Column("count", sa.Integer, nullable=False),
    sa.Column("document", sa.JSON, nullable=False),
)

agent = sa.Table(
    "agent",
    metadata,
    sa.Column("node_id", sa.String, primary_key=True),
    sa.Column("seen_at", sa.Double, nullable=False),
    sa.Column("document", sa.JSON, nullable=False),
)

# Highest committed sequence number of each agent's spool.
delivery = sa.Table(
    "delivery",
    metadata,
    sa.Column("node_id", sa.String, primary_key=True),
    sa.Column("sequence", sa.BigInteger, nullable=False),
)

assignment = sa.Table(
    "assignment",
    metadata,
    sa.Column("assignment_id", sa.String, primary_key=True),
    sa.Column("app", sa.String, nullable=False),
    sa.Column("node_id", sa.String, nullable=False),
    sa.Column("domain", sa.Integer, nullable=False),
    sa.Column("placement", sa.String, nullable=False),
    sa.Column("state", sa.String, nullable=False),
    sa.Column("reserved_at", sa.Double),
    sa.Column("bound_at", sa.Double),
    sa.Column("ended_at", sa.Double),
    sa.Column("expires_at", sa.Double),
    sa.Column("memory_bytes", sa.BigInteger, nullable=False),
    sa.Index(None, "node_id", "state"),
    sa.Index(None, "state", "ended_at"),
)

promotion = sa.Table(
    "promotion",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("app", sa.String, nullable=False),
    sa.Column("placement", sa.String, nullable=False),
    sa.Column("version", sa.Integer, nullable=False),
    sa.Column("reason", sa.String, nullable=False),
    sa.Column("promoted_at", sa.Double, nullable=False),
    sa.Index(None, "app", "placement", "id"),
)

forecast = sa.Table(
    "forecast",
    metadata,
    sa.Column("assignment_id", sa.String, primary_key=True),
    sa.Column("app", sa.String, nullable=False),
    sa.Column("node_id", sa.String, nullable=False),
    sa.Column("placement", sa.String, nullable=False),
    sa.Column("model_version", sa.Integer, nullable=False),
    sa.Column("made_at", sa.Double, nullable=False, index=True),
    sa.Column("document", sa.JSON, nullable=False),
)

realised = sa.Table(
    "realised",
    metadata,
    # A ``row_ids.row_id``.
    sa.Column("run_id", sa.String, primary_key=True),
    sa.Column("assignment_id", sa.String, nullable=False),
    sa.Column("app", sa.String, nullable=False),
    sa.Column("placement", sa.String, nullable=False),
    sa.Column("node_id", sa.String, nullable=False),
    sa.Column("model_version", sa.Integer, nullable=False),
    sa.Column("ended_at", sa.Double, nullable=False),
    sa.Column("predicted", sa.Double, nullable=False),
    sa.Column("lower", sa.Double, nullable=False),
    sa.Column("upper", sa.Double, nullable=False),
    sa.Column("level", sa.Double, nullable=False),
    sa.Column("measured", sa.Double, nullable=False),
    sa.Column("metric_unit", sa.String, nullable=False),
    sa.Index(None, "app", "placement", "ended_at"),
)

operation = sa.Table(
    "operation",
    metadata,
    sa.Column("id", sa.String, primary_key=True),
    sa.Column("kind", sa.String, nullable=False),
    sa.Column("state", sa.String, nullable=False),
    sa.Column("progress", sa.Double, nullable=False),
    sa.Column("message", sa.String, nullable=False),
    sa.Column("owner", sa.String, nullable=False),
    sa.Column("created_at", sa.Double, nullable=False, index=True),
    sa.Column("started_at", sa.Double),
    sa.Column("ended_at", sa.Double),
    sa.Column("document", sa.JSON, nullable=False),
)

token = sa.Table(
    "token",
    metadata,
    sa.Column("id", sa.String, primary_key=True),
    sa.Column("role", sa.String, nullable=False),
    sa.Column("secret_hash", sa.String, nullable=False),
    sa.Column("created_at", sa.Double, nullable=False),
    sa.Column("expires_at", sa.Double),
    sa.Column("revoked_at", sa.Double),
    sa.Column("subject", sa.String, nullable=False),
    # Patterns of the names of nodes that it may speak for; none for any.
    sa.Column("nodes", sa.JSON, nullable=False, server_default="[]"),
)

# A single row: the last sequence number, and the number up to which changes were deleted.
# Writers hold its lock until the commit, so that changes become visible in sequence order.
feed = sa.Table(
    "feed",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("last", sa.BigInteger, nullable=False),
    sa.Column("trimmed", sa.BigInteger, nullable=False),
)

change = sa.Table(
    "change",
    metadata,
    sa.Column("sequence", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("kind", sa.String, nullable=False),
    sa.Column("owner", sa.String, nullable=False),
    sa.Column("key", sa.String, nullable=False),
    sa.Column("origin", sa.String, nullable=False),
    sa.Column("changed_at", sa.Double, nullable=False),
)
