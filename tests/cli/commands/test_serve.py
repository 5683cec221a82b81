"""`dlrm serve` on a database that it cannot use."""

import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from service.database import Database, opening
from service.database.migrate import migrate
from tests.service.postgres import ADMIN, HOST, IS_INSTALLED, PASSWORD, PostgresServer, find_free_port, run_postgres
from tests.small_disk import small_disk

SECRET = quote(PASSWORD)
USER = f"{ADMIN}:{SECRET}"
NEWER = "CREATE TABLE alembic_version (version_num TEXT)", "INSERT INTO alembic_version VALUES ('9999')"


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    """PostgreSQL server that wants a password, on a port."""
    if not IS_INSTALLED:
        pytest.skip("PostgreSQL is not installed: apt-get install postgresql")
    with run_postgres(find_free_port()) as server:
        server.execute("CREATE ROLE weak LOGIN PASSWORD 'weak'")
        server.execute("CREATE DATABASE of_another_program")
        server.execute("CREATE TABLE jobs (id INTEGER)", "of_another_program")
        server.execute("CREATE DATABASE newer")
        server.execute(
            "CREATE TABLE alembic_version (version_num TEXT); INSERT INTO alembic_version VALUES ('9999')", "newer"
        )
        server.execute("CREATE DATABASE read_only")
        server.execute("ALTER DATABASE read_only SET default_transaction_read_only = on")
        yield server


@pytest.fixture
def serve(
    dlrm: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[[str], tuple[int, list[str]]]:
    """Function that runs `dlrm serve` on the database at a URL, and returns exit code and lines of its errors."""

    def run(url: str) -> tuple[int, list[str]]:
        monkeypatch.setenv("DLRM_DATABASE_URL", url)
        ended = dlrm("serve", "--port", "0", "--state-directory", str(tmp_path / "state"))
        assert ended.out == ""
        lines = ended.err.splitlines()
        assert 1 <= len(lines) <= 3
        assert lines[-1].startswith("error: ")
        return ended.code, lines

    return run


@pytest.mark.parametrize(
    "url",
    [
        "nonsense",
        "sqlite",
        "sqlite://",
        "sqlite:///:memory:",
        "sqlite:///file:x?uri=true",
        f"postgresql+psycopg://{ADMIN}:{SECRET}@{HOST}:port/postgres",
        f"postgresql+psycopg://{ADMIN}:{SECRET}@{HOST}:99999/postgres",
        f"postgresql+psycopg://{ADMIN}:{SECRET}@at@{HOST}/postgres",
        f"postgresql+psycopg//{ADMIN}:{SECRET}@{HOST}/postgres",
        f"mysql://{ADMIN}:{SECRET}@{HOST}/postgres",
        f"postgres://{ADMIN}:{SECRET}@{HOST}/postgres",
        f"postgresql://{ADMIN}:{SECRET}@{HOST}/postgres",
        f"postgresql+nosuch://{ADMIN}:{SECRET}@{HOST}/postgres",
    ],
)
def test_a_url_that_can_be_that_of_no_database_is_bad_input(
    url: str, serve: Callable[[str], tuple[int, list[str]]]
) -> None:
    code, lines = serve(url)
    assert (code, len(lines)) == (2, 1)
    assert lines[0].startswith("error: DLRM_DATABASE_URL: ")
    assert "(valid: sqlite:////absolute/path.sqlite3, or postgresql+psycopg://USER:PASSWORD@HOST" in lines[0]
    assert SECRET not in lines[0]
    assert "at@" not in lines[0]


@pytest.mark.parametrize(
    ("url", "cause", "remedy"),
    [
        (
            f"{USER}@{HOST}:1/postgres",
            "Connection refused",
            "check that PostgreSQL runs there, and correct host and port",
        ),
        (f"{USER}@no.invalid:{{port}}/postgres", "failed to resolve host 'no.invalid'", "correct host and port"),
        (f"{USER}@/postgres?host=/nowhere", "No such file or directory", "correct host and port"),
        (f"{ADMIN}:wr%2Fong@{HOST}:{{port}}/postgres", 'failed for user "postgres"', "correct user and password"),
        (f"{ADMIN}@{HOST}:{{port}}/postgres", "no password supplied", "correct user and password"),
        (f"{ADMIN}@{HOST}:{{port}}/postgres?password=wr%2Fong", "failed for user", "correct user and password"),
        (f"nobody:{SECRET}@{HOST}:{{port}}/postgres", 'failed for user "nobody"', "correct user and password"),
        (f"{USER}@{HOST}:{{port}}/none", 'database "none" does not exist', "create it (createdb), or correct its name"),
        (f"{USER}@{HOST}:{{port}}/postgres?sslmode=require", "does not support SSL", "correct the URL"),
        (f"{USER}@{HOST}:{{port}}/postgres?sslmod=require", 'invalid connection option "sslmod"', "correct the URL"),
        (f"weak:weak@{HOST}:{{port}}/postgres", "permission denied for schema public", "make its user the owner"),
        (f"{USER}@{HOST}:{{port}}/of_another_program", 'relation "jobs" already exists', "name an empty database"),
        (f"{USER}@{HOST}:{{port}}/newer", "to revision 9999, of which this version knows", "start that version"),
        (f"{USER}@{HOST}:{{port}}/read_only", "in a read-only transaction", "name the server that can be written to"),
    ],
)
def test_a_postgresql_that_cannot_be_used_is_told_in_a_line_with_what_to_do(
    url: str,
    cause: str,
    remedy: str,
    server: PostgresServer,
    serve: Callable[[str], tuple[int, list[str]]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(opening, "WAIT_SECONDS", 0.1)
    code, lines = serve("postgresql+psycopg://" + url.format(port=server.port))
    assert code == 1
    assert lines[-1].startswith("error: DLRM_DATABASE_URL: cannot use postgresql+psycopg://")
    assert cause in lines[-1]
    assert remedy in lines[-1].rpartition("; ")[2]
    text = "\n".join(lines)
    assert not any(secret in text for secret in (SECRET, PASSWORD, "wr%2Fong", "wr/ong", ":weak"))


def test_a_server_that_is_away_is_waited_for_and_that_is_told_once(
    serve: Callable[[str], tuple[int, list[str]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(opening, "WAIT_SECONDS", 0.2)
    monkeypatch.setattr(opening, "PAUSE_SECONDS", 0.02)
    code, lines = serve(f"postgresql+psycopg://{USER}@{HOST}:1/postgres")
    assert (code, len(lines)) == (1, 2)
    assert "waiting_for_database" in lines[0]
    assert "seconds_at_most=0.2" in lines[0]


def write_sqlite(path: Path, *statements: str) -> Path:
    with closing(sqlite3.connect(path)) as connection, connection:
        for statement in statements:
            connection.execute(statement)
    return path


@pytest.mark.parametrize(
    ("name", "cause", "remedy"),
    [
        ("none/x.sqlite3", "No such file or directory", "choose a file in a directory that exists"),
        ("/proc/x.sqlite3", "No such file or directory", "choose a file in a directory that exists"),
        ("a directory", "unable to open database file", "choose a file in a directory that exists"),
        ("text", "file is not a database", "choose another file, or restore a backup"),
        ("other.sqlite3", "table jobs already exists", "name an empty database"),
        ("newer.sqlite3", "to revision 9999, of which this version knows", "start that version"),
    ],
)
def test_an_unusable_sqlite_file_is_one_line_with_what_to_do(
    name: str, cause: str, remedy: str, tmp_path: Path, serve: Callable[[str], tuple[int, list[str]]]
) -> None:
    (tmp_path / "a directory").mkdir()
    (tmp_path / "text").write_text("no database " * 100)
    write_sqlite(tmp_path / "other.sqlite3", "CREATE TABLE jobs (id INTEGER)")
    write_sqlite(tmp_path / "newer.sqlite3", *NEWER)
    code, lines = serve(f"sqlite:///{quote(str(tmp_path / name))}")
    assert (code, len(lines)) == (1, 1)
    assert lines[0].startswith("error: DLRM_DATABASE_URL: cannot use ")
    assert cause in lines[0]
    assert f"; {remedy}" in lines[0]


@pytest.mark.parametrize("has_tables", [True, False])
def test_an_sqlite_file_on_a_read_only_disk_is_told_in_a_line(
    has_tables: bool, tmp_path: Path, serve: Callable[[str], tuple[int, list[str]]]
) -> None:
    with small_disk(tmp_path / "disk", 1 << 22) as disk:
        url = f"sqlite:///{disk}/x.sqlite3"
        if has_tables:
            database = Database(url)
            migrate(database)
            database.close()
            (disk / "x.sqlite3.lock").touch()
        subprocess.run(["mount", "-o", "remount,ro", disk], check=True)
        code, lines = serve(url)
    assert (code, len(lines)) == (1, 1)
    assert "Read-only file system; choose a file in a directory that exists and that the service can" in lines[0]


def test_a_driver_that_is_not_installed_is_told_with_how_to_install_it(
    serve: Callable[[str], tuple[int, list[str]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with suppress(KeyError):
        monkeypatch.delitem(sys.modules, "sqlalchemy.dialects.postgresql.psycopg")
    code, lines = serve(f"postgresql+psycopg://{USER}@{HOST}:1/postgres")
    assert (code, len(lines)) == (1, 1)
    assert lines[0].endswith("; install it: pip install 'dlrm-service[postgres]'")
    assert SECRET not in lines[0]
