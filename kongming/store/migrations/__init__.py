"""Schema migrations, run by the library itself: users need no Alembic configuration."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import command
from alembic.config import Config
from alembic.script import ScriptDirectory

from kongming.records.errors import IncompatibleError


def config(connection: sa.Connection | None = None) -> Config:
    """Return Alembic's configuration for the store; ``connection`` runs the migrations."""
    settings = Config()
    settings.set_main_option("script_location", "kongming.store:migrations")
    settings.set_main_option("path_separator", "os")
    settings.attributes["connection"] = connection
    return settings


def migrate(connection: sa.Connection, revision: str | None) -> None:
    """Upgrade the tables to the newest revision, within the connection's transaction.

    ``revision`` is the current revision, None for an empty database.

    Raises:
        IncompatibleError: ``revision`` is unknown: a newer KONGMING wrote it.
    """
    settings = config(connection)
    if revision is not None:
        refuse_newer(revision)
    command.upgrade(settings, "head")


def refuse_newer(revision: str) -> None:
    """Raise IncompatibleError for a revision that is unknown: a newer KONGMING wrote it."""
    scripts = ScriptDirectory.from_config(config()).walk_revisions()
    if revision not in {script.revision for script in scripts}:
        raise IncompatibleError(
            f"The store has revision {revision!r}, which this KONGMING does not know.",
            hint="Upgrade kongming, or name another store with --store or KONGMING_STORE.",
        )
