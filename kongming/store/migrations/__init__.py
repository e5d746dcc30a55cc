"""Migrations of the store, run by the library itself: a user needs no Alembic settings."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import command
from alembic.config import Config
from alembic.script import ScriptDirectory

from kongming.store.connection import incompatible


def config(connection: sa.Connection | None = None) -> Config:
    """Alembic's settings for the store; ``connection`` is the one that migrates."""
    made = Config()
    made.set_main_option("script_location", "kongming.store:migrations")
    made.set_main_option("path_separator", "os")
    made.attributes["connection"] = connection
    return made


def migrate(connection: sa.Connection, found: str | None) -> None:
    """Bring the tables to the newest form, inside the connection's transaction.

    ``found`` is the present revision, None for an empty database.

    Raises:
        IncompatibleError: ``found`` is no revision known here: a newer KONGMING wrote it.
    """
    settings = config(connection)
    known = {script.revision for script in ScriptDirectory.from_config(settings).walk_revisions()}
    if found is not None and found not in known:
        raise incompatible(found)
    command.upgrade(settings, "head")
