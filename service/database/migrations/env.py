"""Entry point of Alembic: runs on the connection and in the transaction of `service.database.migrate`."""

from alembic import context

context.configure(connection=context.config.attributes["connection"], render_as_batch=True)
context.run_migrations()
