import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import inspect, text
from sqlalchemy.exc import DBAPIError, IntegrityError

import service.audit.models
import service.keys.models
import service.leader.models
import service.retention.models
import service.schedules.models
import service.store.models
import service.webhooks.models
from service.database import Base, Database
from service.database.failures import are_values_refused
from service.database.migrate import ForeignRevisionError, make_config, migrate
from service.keys.models import ApiKey
from service.retention.repository import RetentionRepository
from service.retention.rules import RetentionRules
from service.store.removal import RemovalRepository
from tests.service.databases import on_both_databases, on_postgresql

pytestmark = on_both_databases

NEWEST_REVISION = "0016"
MODELS = (
    service.audit.models,
    service.leader.models,
    service.retention.models,
    service.store.models,
    service.keys.models,
    service.schedules.models,
    service.webhooks.models,
)


def open_database(directory: Path) -> Database:
    return Database(f"sqlite:///{directory / 'service.sqlite3'}")


def make_key(created_at: datetime) -> ApiKey:
    return ApiKey(id="key_0", name="x", owner="team", role="viewer", secret_hash="h", created_at=created_at)


def is_no_text_index(_: object, name: str | None, *__: object) -> bool:
    """Whether a table or index is none of those by which each kind of database finds texts."""
    return name is None or not name.startswith(("job_text_index", "ix_job_texts_text"))


def test_migrations_make_exactly_the_tables_of_the_models(database: Database) -> None:
    migrate(database)
    with database.engine.connect() as connection:
        options = {"include_object": is_no_text_index}
        differences = compare_metadata(MigrationContext.configure(connection, opts=options), Base.metadata)
    assert MODELS
    assert differences == []


def test_a_job_of_the_first_revision_can_be_measured_and_removed(database: Database) -> None:
    with database.engine.begin() as connection:
        command.upgrade(make_config(connection), "0007")
    values = {
        **{"id": "job_0", "name": "old", "priority": 0, "state": "SUCCEEDED", "reason": "completed", "message": ""},
        **{"created_by": "k", "owner": "o", "num_attempts": 0, "is_held": False, "launcher": "local", "world_size": 1},
        **{"num_nodes": 1, "min_nodes": 1, "num_cores": 1, "memory_bytes": 1, "num_gpus": 0, "run_directory": "/runs"},
        **dict.fromkeys(("spec", "resolved", "progress", "metrics"), "{}"),
        **dict.fromkeys(("created_at", "finished_at"), "2026-01-01 00:00:00+00:00"),
    }
    with database.write() as session:
        names = ", ".join(values)
        session.execute(text(f"INSERT INTO jobs ({names}) VALUES (:{names.replace(', ', ', :')})"), values)
    migrate(database)
    with database.write() as session:
        retention = RetentionRepository(session)
        retention.add_sizes({"job_0": 7})
        (due,) = retention.list_due(RetentionRules(days=1), datetime(2026, 2, 1, tzinfo=UTC), 10)
        assert (due.id, due.num_bytes) == ("job_0", 7)
        RemovalRepository(session).remove_some(["job_0"], 100)
        assert session.scalar(text("SELECT count(*) FROM run_sizes")) == 0


def test_services_that_start_at_once_migrate_once(database: Database) -> None:
    together = threading.Barrier(4)

    def start(_: int) -> None:
        own = Database(database.engine.url.render_as_string(hide_password=False))
        together.wait()
        migrate(own)
        migrate(own)
        own.close()

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(start, range(4)))
    with database.read() as session:
        assert session.execute(text("SELECT version_num FROM alembic_version")).all() == [(NEWEST_REVISION,)]


@pytest.mark.parametrize(
    ("revision", "remedy"), [("0006", "last version before this one"), ("9999", "start that version")]
)
def test_tables_of_another_version_stay_as_they_are(database: Database, revision: str, remedy: str) -> None:
    migrate(database)
    with database.write() as session:
        session.execute(text(f"UPDATE alembic_version SET version_num = '{revision}'"))
        session.add(make_key(datetime.now(UTC)))
    with pytest.raises(ForeignRevisionError, match=remedy):
        migrate(database)
    with database.read() as session:
        assert session.get(ApiKey, "key_0") is not None
        assert session.scalar(text("SELECT version_num FROM alembic_version")) == revision


def test_a_migration_that_fails_half_way_leaves_nothing(database: Database) -> None:
    with database.write() as session:
        session.execute(text("CREATE TABLE metrics (id INTEGER)"))
    with pytest.raises(Exception, match="already exists"):
        migrate(database)
    assert inspect(database.engine).get_table_names() == ["metrics"]


def test_sqlite_writes_ahead_and_minds_foreign_keys(tmp_path: Path) -> None:
    database = open_database(tmp_path)
    migrate(database)
    with database.read() as session:
        assert session.execute(text("PRAGMA journal_mode")).scalar() == "wal"
    with pytest.raises(IntegrityError), database.write() as session:
        session.execute(text("INSERT INTO job_labels VALUES ('job_0', 'a', 'b')"))


def test_a_block_that_raises_changes_nothing(database: Database) -> None:
    migrate(database)

    def add_and_fail() -> None:
        with database.write() as session:
            session.add(make_key(datetime.now(UTC)))
            session.flush()
            raise KeyError

    with pytest.raises(KeyError):
        add_and_fail()
    with database.read() as session:
        assert session.get(ApiKey, "key_0") is None


def test_two_writers_that_read_first_wait_for_each_other(tmp_path: Path) -> None:
    database = open_database(tmp_path)
    migrate(database)
    with database.write() as session:
        session.execute(text("CREATE TABLE counter (n INTEGER)"))
        session.execute(text("INSERT INTO counter VALUES (0)"))

    def count(_: int) -> None:
        with database.write() as session:
            n = session.execute(text("SELECT n FROM counter")).scalar_one()
            session.execute(text("UPDATE counter SET n = :n"), {"n": n + 1})

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(count, range(80)))
    with database.read() as session:
        assert session.execute(text("SELECT n FROM counter")).scalar() == 80


def test_times_come_back_in_utc(database: Database) -> None:
    migrate(database)
    elsewhere = datetime(2030, 1, 1, 12, tzinfo=timezone(timedelta(hours=5)))
    with database.write() as session:
        session.add(make_key(elsewhere))
    with database.read() as session:
        created_at = session.get_one(ApiKey, "key_0").created_at
    assert created_at == elsewhere
    assert created_at.tzinfo is UTC


@on_postgresql
def test_too_many_rows_for_one_value_are_no_failure_of_the_whole_database(database: Database) -> None:
    with database.read() as session, pytest.raises(DBAPIError) as caught:
        session.execute(text("SELECT (SELECT 1 UNION ALL SELECT 2)"))
    assert are_values_refused(caught.value)
