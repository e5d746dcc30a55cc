"""Tables of the store. Queried fields are columns; the complete record is a JSON document.

The ``id`` of a fingerprint, a run and a signature is a ``row_ids.row_id``: of its node and its own.

A change here needs a migration in ``migrations/versions`` and its revision in ``HEAD``.
"""

from __future__ import annotations

import sqlalchemy as sa

from kongming.store.column_types import MOMENT

HEAD = "0005"
"""Newest schema revision; compared when a store is opened, so that Alembic is rarely loaded."""

VERSION_TABLE = "kongming_version"
"""Differs from Alembic's default name, which another program's database may use."""

metadata = sa.MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "fk": "fk_%(table_name)s_%(column_0_name)s_%(referred_table_name)s",
        "pk": "pk_%(table_name)s",
    }
)

node = sa.Table(
    "node",
    metadata,
    sa.Column("id", sa.String, primary_key=True),
    # When the facts were read (UTC): older facts, imported later, do not replace newer ones.
    sa.Column("seen_at", MOMENT, nullable=False),
    # Id of the part with the same facts; NULL for nodes written by older versions.
    sa.Column("facts", sa.String),
    sa.Column("document", sa.JSON, nullable=False),
)

# Content shared by many fingerprints, keyed by its hash: stored once and immutable.
part = sa.Table(
    "part",
    metadata,
    sa.Column("id", sa.String, primary_key=True),
    sa.Column("document", sa.JSON, nullable=False),
)

fingerprint = sa.Table(
    "fingerprint",
    metadata,
    sa.Column("id", sa.String, primary_key=True),
    sa.Column("node_id", sa.ForeignKey("node.id"), nullable=False),
    sa.Column("suite_version", sa.String, nullable=False),
    sa.Column("purpose", sa.String, nullable=False),
    sa.Column("cpu", sa.Integer, nullable=False),
    sa.Column("started_at", MOMENT, nullable=False),
    sa.Column("document", sa.JSON, nullable=False),
    sa.Index(None, "node_id", "purpose", "started_at"),
    sa.Index(None, "started_at"),
)

run = sa.Table(
    "run",
    metadata,
    sa.Column("id", sa.String, primary_key=True),
    sa.Column("app", sa.String, nullable=False),
    sa.Column("identity", sa.String, nullable=False),
    # No foreign key: a failed run may have no fingerprint, and so no stored node.
    sa.Column("node_id", sa.String, nullable=False),
    sa.Column("placement", sa.String, nullable=False),
    sa.Column("kind", sa.String, nullable=False),
    sa.Column("ok", sa.Boolean, nullable=False),
    sa.Column("campaign", sa.String, nullable=False),
    sa.Column("step", sa.Integer, nullable=False),
    sa.Column("metric_unit", sa.String, nullable=False),
    # Whether an operator or a server asked for it: models learn from no other.
    sa.Column("asked", sa.Boolean, nullable=False, server_default=sa.true()),
    sa.Column("started_at", MOMENT, nullable=False),
    sa.Column("fingerprint_id", sa.ForeignKey("fingerprint.id"), index=True),
    sa.Column("before_id", sa.ForeignKey("fingerprint.id"), index=True),
    sa.Column("after_id", sa.ForeignKey("fingerprint.id"), index=True),
    sa.Column("document", sa.JSON, nullable=False),
    sa.Index(None, "app", "identity", "node_id", "placement", "started_at"),
    sa.Index(None, "campaign", "step"),
    sa.Index(None, "started_at"),
)

signature = sa.Table(
    "signature",
    metadata,
    sa.Column("id", sa.String, primary_key=True),
    sa.Column("app", sa.String, nullable=False),
    sa.Column("identity", sa.String, nullable=False),
    sa.Column("node_id", sa.String, nullable=False),
    sa.Column("placement", sa.String, nullable=False),
    sa.Column("campaign", sa.String, nullable=False),
    sa.Column("step", sa.Integer, nullable=False),
    # As of a run.
    sa.Column("asked", sa.Boolean, nullable=False, server_default=sa.true()),
    # Copied from the fingerprint, to order signatures.
    sa.Column("started_at", MOMENT, nullable=False),
    sa.Column("fingerprint_id", sa.ForeignKey("fingerprint.id"), nullable=False, index=True),
    sa.Column("document", sa.JSON, nullable=False),
    sa.Index(None, "app", "identity", "node_id", "placement", "started_at"),
    sa.Index(None, "campaign", "step"),
)

reference = sa.Table(
    "reference",
    metadata,
    sa.Column("node_id", sa.String, primary_key=True),
    sa.Column("suite_version", sa.String, primary_key=True),
    sa.Column("cpu", sa.Integer, primary_key=True),
    sa.Column("taken_at", MOMENT, nullable=False),
    sa.Column("document", sa.JSON, nullable=False),
)

application = sa.Table(
    "application",
    metadata,
    sa.Column("name", sa.String, primary_key=True),
    sa.Column("identity", sa.String, primary_key=True),
    sa.Column("put_at", MOMENT, nullable=False),
    sa.Column("document", sa.JSON, nullable=False),
)

campaign = sa.Table(
    "campaign",
    metadata,
    sa.Column("id", sa.String, primary_key=True),
    sa.Column("key", sa.String, nullable=False),
    sa.Column("opened_at", MOMENT, nullable=False),
    sa.Column("finished_at", MOMENT),
    sa.Column("document", sa.JSON, nullable=False),
)
# At most one unfinished campaign per key, even if opened concurrently.
sa.Index(
    "uq_campaign_under_way",
    campaign.c.key,
    unique=True,
    sqlite_where=campaign.c.finished_at.is_(None),
    postgresql_where=campaign.c.finished_at.is_(None),
)

model = sa.Table(
    "model",
    metadata,
    sa.Column("app", sa.String, primary_key=True),
    sa.Column("placement", sa.String, primary_key=True),
    sa.Column("version", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("identity", sa.String, nullable=False),
    sa.Column("node_id", sa.String, nullable=False),
    sa.Column("trained_at", MOMENT, nullable=False),
    sa.Column("document", sa.JSON, nullable=False),
)
