"""Index of the trigrams of texts on PostgreSQL, by its extension `pg_trgm`."""

import structlog
from sqlalchemy import Connection, text
from sqlalchemy.exc import DBAPIError

INDEX = "ix_job_texts_text"
"""Name of the index of the texts in which jobs are looked for."""
_FIND_SCHEMA = "SELECT nspname FROM pg_extension JOIN pg_namespace n ON n.oid = extnamespace WHERE extname = 'pg_trgm'"

log = structlog.get_logger(__name__)


def index_texts(connection: Connection) -> None:
    """Make the index of the texts, if the server has the extension and this user may add it.

    Without the index, each search reads all texts. The connection must be in a transaction.
    """
    try:
        with connection.begin_nested():
            connection.execute(text("CREATE EXTENSION IF NOT EXISTS pg_trgm"))
            quote = connection.dialect.identifier_preparer.quote
            schema = quote(connection.execute(text(_FIND_SCHEMA)).scalar_one())
            connection.execute(text(f"CREATE INDEX {INDEX} ON job_texts USING gin (text {schema}.gin_trgm_ops)"))
    except DBAPIError as error:
        log.warning("text_search_without_index", extension="pg_trgm", error=str(error.orig).partition("\n")[0])


def move_extension(connection: Connection, from_schema: str, to_schema: str) -> None:
    """Move the extension to another schema if it is in `from_schema`: it must not go with tables that are dropped."""
    if connection.execute(text(_FIND_SCHEMA)).scalar() == from_schema:
        quote = connection.dialect.identifier_preparer.quote
        connection.execute(text(f"ALTER EXTENSION pg_trgm SET SCHEMA {quote(to_schema)}"))
