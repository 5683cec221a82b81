"""Backup and restoration: the database in a directory with a manifest."""

import os
import shutil
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from tempfile import mkdtemp

from sqlalchemy import URL, Connection, create_engine, inspect, text
from sqlalchemy.exc import DBAPIError

from dlrm.record import FileRecord, write_atomically
from service.backup import postgresql, sqlite
from service.backup.manifest import MANIFEST, BackupError, Manifest
from service.database.failures import get_cause
from service.database.migrate import ForeignRevisionError, check_revision
from service.database.url import describe_database, get_sqlite_file, parse_database_url
from service.lock import lock_sqlite_file, lock_state_directory
from service.settings import Settings

_COPIED = {"why": "the database was restored as a copy"}


def back_up(settings: Settings, target: Path) -> Manifest:
    """Write a backup of the service's database to a new directory; the service may run, and goes on meanwhile.

    Run directories are no part of it. Raises BackupError and DatabaseUrlError; nothing is left at `target` then.
    """
    target = target.absolute()
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise BackupError(f"{target} exists already; name a new directory")
    url = parse_database_url(settings.database_url)
    try:
        partial = Path(mkdtemp(prefix=f".{target.name}-", dir=target.parent))
    except OSError as error:
        raise BackupError(f"cannot write to {target.parent}: {error.strerror}") from None
    try:
        manifest = _write(settings, url, partial)
        write_atomically(partial / MANIFEST, manifest.model_dump_json(indent=1), mode=0o600)
        partial.rename(target)
    except OSError as error:
        raise BackupError(f"cannot write to {target}: {error.strerror}") from None
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return manifest


@dataclass(frozen=True)
class Restored:
    """Restored database, and what acts as soon as a service starts on it."""

    manifest: Manifest
    aside: str | None
    """Name of the earlier database, which is kept; None if there was none."""
    num_schedules: int
    """Number of schedules that submit jobs."""
    num_webhooks: int
    """Number of webhooks that are sent."""


def restore(settings: Settings, source: Path, *, force: bool, is_copy: bool = False) -> Restored:
    """Put the database of a backup where the service looks for it; no service may run.

    force: move a database aside that is there already. is_copy: pause the schedules and stop the webhooks, for a
    service beside one that goes on. Raises BackupError, DatabaseUrlError, DatabaseUnusableError and
    StateDirectoryError; nothing is changed then.
    """
    manifest = Manifest.read(source)
    try:
        check_revision(manifest.revision)
    except ForeignRevisionError as error:
        raise BackupError(f"cannot restore {source}: {error}") from None
    url = parse_database_url(settings.database_url)
    if url.get_backend_name() != manifest.kind:
        raise BackupError(
            f"{source} is of {manifest.kind}, and DLRM_DATABASE_URL names {describe_database(url)}; a backup can be "
            "restored to the same kind of database alone"
        )
    stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%S")
    file = get_sqlite_file(url)
    if file is None:
        aside = _restore_postgresql(url, source, manifest, stamp if force else None)
        return Restored(manifest, aside, *_look_at_actors(url, is_copy=is_copy))
    with lock_state_directory(settings.state_directory), lock_sqlite_file(file):
        if file.exists() and not force:
            raise BackupError(f"there is a database already, {file}; --force moves it aside")
        try:
            aside = sqlite.put_in_place(source / manifest.file, file, stamp)
        except OSError as error:
            raise BackupError(f"cannot write {file}: {error.strerror}") from None
        return Restored(manifest, aside and str(aside), *_look_at_actors(url, is_copy=is_copy))


def _write(settings: Settings, url: URL, directory: Path) -> Manifest:
    """Write the database to a directory, and return the manifest for it."""
    created_at = datetime.now(UTC)
    source = get_sqlite_file(url)
    if source is not None:
        file, server_version, schema = directory / "service.sqlite3", None, None
        sqlite.copy_database(source, file)
        with _connect(URL.create("sqlite", database=str(file))) as connection:
            revision, num_jobs = _describe(connection)
    else:
        file = directory / "service.pgdump"
        with _connect(url) as connection:
            server_version, schema = postgresql.read_server(connection)
            revision, num_jobs = _describe(connection)
        postgresql.dump_database(url, file, server_version, schema)
    with file.open("rb") as content:
        os.fsync(content.fileno())
    found = FileRecord.from_file(file)
    return Manifest(
        kind="postgresql" if source is None else "sqlite",
        server_version=server_version,
        db_schema=schema,
        revision=revision,
        version=version("dlrm-service"),
        created_at=created_at,
        runs_directory=str(settings.runs_directory),
        num_jobs=num_jobs,
        file=file.name,
        num_bytes=found.num_bytes,
        sha256=found.sha256,
    )


def _restore_postgresql(url: URL, source: Path, manifest: Manifest, stamp: str | None) -> str | None:
    """Restore a PostgreSQL database; return the schema with the tables that were there, None if there were none.

    stamp: end of the name of that schema; None refuses to move tables aside.
    """
    with ExitStack() as stack:
        connection = stack.enter_context(_connect(url))
        stack.enter_context(postgresql.keep_services_out(connection))
        server_version, schema = postgresql.read_server(connection)
        if (server_version, schema) != (manifest.server_version, manifest.db_schema):
            raise BackupError(
                f"{source} is of PostgreSQL {manifest.server_version}, schema {manifest.db_schema}; the database is of "
                f"PostgreSQL {server_version}, schema {schema}: both must be the same"
            )
        aside = None
        if postgresql.has_tables(connection, schema):
            if stamp is None:
                raise BackupError(f"{describe_database(url)} has tables already; --force moves them aside")
            aside = stack.enter_context(postgresql.move_schema_aside(connection, schema, stamp))
        postgresql.restore_database(url, source / manifest.file, server_version)
        postgresql.index_texts(connection)
        return aside


def _look_at_actors(url: URL, *, is_copy: bool) -> tuple[int, int]:
    """Return the numbers of schedules and webhooks that act by themselves; first stop them in a copy."""
    with _connect(url) as connection:
        if not {"schedules", "webhooks"} <= set(inspect(connection).get_table_names()):
            return 0, 0
        if is_copy:
            connection.execute(text("UPDATE schedules SET is_paused = true"))
            connection.execute(text("UPDATE webhooks SET stopped_because = coalesce(stopped_because, :why)"), _COPIED)
            connection.execute(text("DELETE FROM webhook_deliveries"))
        counts = (
            "SELECT (SELECT count(*) FROM schedules WHERE NOT is_paused),"
            " (SELECT count(*) FROM webhooks WHERE stopped_because IS NULL)"
        )
        num_schedules, num_webhooks = connection.execute(text(counts)).one()
        return num_schedules, num_webhooks


@contextmanager
def _connect(url: URL) -> Generator[Connection]:
    """Open a connection that commits each statement. Raises BackupError if the database cannot be reached."""
    engine = create_engine(url, isolation_level="AUTOCOMMIT")
    try:
        with engine.connect() as connection:
            yield connection
    except ImportError as error:
        raise BackupError(f"its driver is missing ({error}): pip install 'dlrm-service[postgres]'") from None
    except DBAPIError as error:
        raise BackupError(f"cannot use {describe_database(url)}: {get_cause(error)}") from error
    finally:
        engine.dispose()


def _describe(connection: Connection) -> tuple[str, int]:
    """Return the revision of the tables, and the number of jobs."""
    try:
        revision = connection.execute(text("SELECT version_num FROM alembic_version")).scalar_one()
        return revision, connection.execute(text("SELECT count(*) FROM jobs")).scalar_one()
    except DBAPIError as error:
        raise BackupError(f"the database is not one of this service: {get_cause(error)}") from error
