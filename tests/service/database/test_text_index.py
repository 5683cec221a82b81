"""Search for text on PostgreSQL, whose index needs an extension that not everybody may add."""

from sqlalchemy import text

from service.database import Database
from service.database.migrate import migrate
from service.store.job_texts import select_containing
from tests.service.postgres import PostgresServer
from tests.service.seeding import seed


def test_text_is_found_without_the_extension_for_its_index(postgres_server: PostgresServer) -> None:
    name = postgres_server.create_database()
    postgres_server.execute("CREATE ROLE plain LOGIN")
    postgres_server.execute("GRANT ALL ON SCHEMA public TO plain", name)
    database = Database(postgres_server.make_url(name).replace("postgres@", "plain@"))
    try:
        migrate(database)
        seed(database, 10, num_steps=1)
        with database.read() as session:
            assert session.scalar(text("SELECT count(*) FROM pg_extension WHERE extname = 'pg_trgm'")) == 0
            assert session.scalars(select_containing(session, "nothing-like-it")).all() == []
            assert len(session.scalars(select_containing(session, "SWEEP-3")).all()) == 1
    finally:
        database.close()
        postgres_server.drop_database(name)
        postgres_server.execute("DROP ROLE plain")
