"""Backup of a PostgreSQL database by PostgreSQL's own programs, `pg_dump` and `pg_restore`."""

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from sqlalchemy import URL, Connection, text

from service.backup.manifest import BackupError
from service.database import trigrams
from service.database.migrate import ADVISORY_LOCK
from service.leader.lock import LOCK_KEY


def dump_database(url: URL, target: Path, server_version: int, schema: str) -> None:
    """Write all tables of a schema to a file, as they are at one moment, while others write. Raises BackupError."""
    target.touch(mode=0o600)
    _run("pg_dump", url, server_version, "--format=custom", f"--table={schema}.*", f"--file={target}")


def restore_database(url: URL, file: Path, server_version: int) -> None:
    """Read all tables from a file in one transaction. Raises BackupError.

    The index of texts needs an extension, which this server or user may lack: it is made anew, if that can be.
    """
    contents = _run("pg_restore", None, server_version, "--list", str(file))
    with tempfile.NamedTemporaryFile("w", suffix=".list") as chosen:
        chosen.writelines(f"{line}\n" for line in contents.splitlines() if trigrams.INDEX not in line)
        chosen.flush()
        options = ("--exit-on-error", "--single-transaction", f"--use-list={chosen.name}")
        _run("pg_restore", url, server_version, *options, str(file))


def index_texts(connection: Connection) -> None:
    """Make the index of texts, if the restored tables are of a revision that has it."""
    if connection.execute(text("SELECT to_regclass('job_texts')")).scalar() is not None:
        with connection.engine.execution_options(isolation_level="READ COMMITTED").begin() as own:
            trigrams.index_texts(own)


def read_server(connection: Connection) -> tuple[int, str]:
    """Return the major version of the server, and the schema in which tables are made."""
    version = connection.execute(text("SELECT current_setting('server_version_num')")).scalar_one()
    schema = connection.execute(text("SELECT current_schema()")).scalar_one()
    if schema is None:
        raise BackupError("the search_path of the database's user names no schema that exists")
    return int(version) // 10_000, schema


def has_tables(connection: Connection, schema: str) -> bool:
    query = "SELECT count(*) FROM information_schema.tables WHERE table_schema = :schema"
    return connection.execute(text(query), {"schema": schema}).scalar_one() > 0


@contextmanager
def keep_services_out(connection: Connection) -> Generator[None]:
    """Hold the locks of the leader and of migrations, so that no service works meanwhile; one that starts waits.

    connection: one that commits each statement. Raises BackupError if a service works.
    """
    for key in (LOCK_KEY, ADVISORY_LOCK):
        if not connection.execute(text("SELECT pg_try_advisory_lock(:key)"), {"key": key}).scalar_one():
            raise BackupError("a service is using the database; stop all of its processes first")
    try:
        yield
    finally:
        connection.execute(text("SELECT pg_advisory_unlock_all()"))


@contextmanager
def move_schema_aside(connection: Connection, schema: str, stamp: str) -> Generator[str]:
    """Rename a schema with all its tables, and make an empty one; yield the new name.

    connection: one that commits each statement. If the block fails, the schema has its old name again.
    """
    quote = connection.dialect.identifier_preparer.quote
    aside = f"{schema}_before_{stamp}".lower()
    rename = f"ALTER SCHEMA {quote(schema)} RENAME TO {quote(aside)}"
    connection.execute(text(f"BEGIN; {rename}; CREATE SCHEMA {quote(schema)}; COMMIT"))
    trigrams.move_extension(connection, aside, schema)
    try:
        yield aside
    except BaseException:
        trigrams.move_extension(connection, schema, aside)
        drop = f"DROP SCHEMA {quote(schema)} CASCADE"
        connection.execute(text(f"BEGIN; {drop}; ALTER SCHEMA {quote(aside)} RENAME TO {quote(schema)}; COMMIT"))
        raise


def _run(name: str, url: URL | None, server_version: int, *options: str) -> str:
    """Run a program of PostgreSQL of the server's major version; return what it prints. Raises BackupError.

    url: the database to connect to; None if the program needs none.
    """
    program, secret = _find_program(name, server_version), dict[str, str]()
    if url is not None:
        address = url.set(drivername="postgresql", password=None).render_as_string(hide_password=False)
        options = (f"--dbname={address}", "--no-owner", "--no-privileges", "--no-password", *options)
        # Not an argument: everybody on the machine can read these.
        secret = {"PGPASSWORD": str(url.password)} if url.password is not None else {}
    ended = subprocess.run(
        [program, *options],
        env={**os.environ, **secret},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
    )
    if ended.returncode:
        raise BackupError(f"{program} failed: {ended.stderr.strip() or f'exit code {ended.returncode}'}")
    return ended.stdout


def _find_program(name: str, server_version: int) -> str:
    """Find a program of the server's major version: on the PATH, or where Debian puts it. Raises BackupError."""
    debian = f"/usr/lib/postgresql/{server_version}/bin/{name}"
    found = [program for program in (shutil.which(name), debian) if program and Path(program).exists()]
    versions = {program: _read_version(program) for program in found}
    for program, version in versions.items():
        if version == server_version:
            return program
    others = ", ".join(f"{program} is of version {version}" for program, version in versions.items())
    raise BackupError(
        f"this needs {name} of PostgreSQL {server_version}, the version of the server "
        f"({others or 'none is installed'}); install postgresql-client-{server_version}"
    )


def _read_version(program: str) -> int:
    said = subprocess.run([program, "--version"], capture_output=True, text=True, check=False).stdout
    found = re.search(r"(\d+)", said)
    return int(found[1]) if found else 0
