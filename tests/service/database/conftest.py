"""Fixtures: an empty database of each kind."""

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import psycopg
import pytest
from psycopg.sql import SQL, Identifier

from service.database import Database
from tests.patience import PATIENCE_SECONDS


@pytest.fixture(scope="session")
def postgres_directory() -> Iterator[str]:
    """Directory with the socket of a PostgreSQL server that these tests start."""
    initdb, postgres = shutil.which("initdb"), shutil.which("postgres")
    if initdb is None or postgres is None:
        pytest.skip("PostgreSQL is not installed: apt-get install postgresql")
    # PostgreSQL refuses to run as root.
    user = "nobody" if os.geteuid() == 0 else None
    with TemporaryDirectory() as directory:
        if user:
            shutil.chown(directory, user)
        data = f"{directory}/data"
        create_command = [initdb, "-D", data, "-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-locale", "--no-sync"]
        subprocess.run(create_command, user=user, cwd=directory, check=True, capture_output=True)
        with Path(directory, "log").open("wb") as log:
            server_command = [postgres, "-D", data, "-k", directory, "-c", "listen_addresses=", "-c", "fsync=off"]
            process = subprocess.Popen(server_command, user=user, cwd=directory, stdout=log, stderr=log)
        try:
            _wait_until_ready(directory)
            yield directory
        finally:
            process.send_signal(signal.SIGINT)
            process.wait()


def _wait_until_ready(directory: str) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        try:
            psycopg.connect(host=directory, user="postgres").close()
            return
        except psycopg.OperationalError:
            if time.monotonic() > deadline:
                raise AssertionError(Path(directory, "log").read_text()) from None
            time.sleep(0.05)


@pytest.fixture(params=["sqlite", "postgresql"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Database]:
    """Database without tables."""
    if request.param == "sqlite":
        database = Database(f"sqlite:///{tmp_path / 'service.sqlite3'}")
    else:
        directory = request.getfixturevalue("postgres_directory")
        name = f"test_{time.monotonic_ns()}"
        with psycopg.connect(host=directory, user="postgres", autocommit=True) as connection:
            connection.execute(SQL("CREATE DATABASE {}").format(Identifier(name)))
        database = Database(f"postgresql+psycopg://postgres@/{name}?host={directory}")
    yield database
    database.close()
