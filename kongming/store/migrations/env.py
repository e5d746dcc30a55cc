"""Alembic's entry point. It migrates on the connection that ``migrate`` was given."""

from alembic import context

from kongming.store.schema import VERSION_TABLE, metadata

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    version_table=VERSION_TABLE,
    # SQLite can: all of a migration or nothing.
    transactional_ddl=True,
    render_as_batch=True,
)
with context.begin_transaction():
    context.run_migrations()
