"""A PostgreSQL server that tests start, on its own files and sockets, and databases on it."""

import os
import shutil
import signal
import socket
import subprocess
from collections.abc import Generator
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory

import psycopg
from psycopg.sql import SQL, Identifier

from service.database import Database
from service.database.migrate import migrate
from tests.patience import wait_until

ADMIN = "postgres"
"""User who may do everything, without a password through the socket, with PASSWORD over TCP."""
PASSWORD = "s3cret-pässword"
TEMPLATE = "dlrm_template"
"""Database with all tables, of which those of tests are copies: quicker than a migration for each."""
HOST = "127.0.0.1"


def find_program(name: str) -> str | None:
    """Find a program of PostgreSQL: on the PATH, or where Debian puts those of the server; None where it is not."""
    versions = Path("/usr/lib/postgresql").glob(f"*/bin/{name}")
    newest_first = sorted(versions, key=lambda path: path.parts[-3].zfill(4), reverse=True)
    return shutil.which(name) or next(map(str, newest_first), None)


IS_INSTALLED = find_program("initdb") is not None and find_program("postgres") is not None


class PostgresServer:
    """A PostgreSQL server in a directory, reachable through a socket there and, where it has a port, over TCP."""

    def __init__(self, directory: Path, port: int | None = None) -> None:
        self.directory = directory
        self.port = port
        # PostgreSQL refuses to run as root.
        self._user = "nobody" if os.geteuid() == 0 else None
        self._process: subprocess.Popen[bytes] | None = None
        self._numbers = count(1)

    def create(self) -> None:
        """Create the files of the server."""
        if self._user:
            shutil.chown(self.directory, self._user)
        options = ["-U", ADMIN, "--auth-local=trust", "--auth-host=scram-sha-256", "-E", "UTF8", "--no-locale"]
        self._run(["initdb", "-D", str(self._data), *options, "--no-sync"])
        with self._data.joinpath("postgresql.conf").open("a") as settings:
            settings.write("fsync = off\nfull_page_writes = off\nmax_connections = 200\n")

    def start(self) -> None:
        """Start the server, and wait until it answers. It ends with this process, however that ends."""
        addresses = f"listen_addresses={HOST if self.port else ''}"
        options = ["-k", str(self.directory), "-c", addresses, "-p", str(self.port or 5432)]
        postgres = find_program("postgres")
        assert postgres is not None
        command = ["setpriv", "--pdeathsig", "INT", postgres, "-D", str(self._data), *options]
        with self.directory.joinpath("log").open("ab") as log:
            self._process = subprocess.Popen(
                command, user=self._user, cwd=self.directory, stdout=log, stderr=log, start_new_session=True
            )
        wait_until(self._answers, self._process)
        self.execute(SQL("ALTER USER {} PASSWORD {}").format(Identifier(ADMIN), PASSWORD).as_string())

    def stop(self) -> None:
        """Stop the server: every connection is closed at once."""
        self.end(signal.SIGINT)

    def end(self, number: signal.Signals) -> None:
        """End the server by a signal: SIGINT stops it; SIGQUIT crashes it, so that it recovers at the next start."""
        if self._process is not None:
            self._process.send_signal(number)
            self._process.wait()
            self._process = None

    def execute(self, statement: str, database: str = ADMIN) -> None:
        """Run a statement in a transaction of its own, where it may be in one."""
        with self._connect(database) as connection:
            connection.execute(statement.encode())

    def create_database(self, template: str = "template0") -> str:
        """Create a database, a copy of `template`, and return its name."""
        name = f"test_{next(self._numbers)}"
        self.execute(f'CREATE DATABASE {name} TEMPLATE "{template}"')
        return name

    def drop_database(self, name: str) -> None:
        """Drop a database, with all connections to it."""
        self.execute(f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)')

    def create_template(self) -> None:
        """Create the database TEMPLATE, with all tables."""
        self.execute(f"CREATE DATABASE {TEMPLATE} TEMPLATE template0")
        database = Database(self.make_url(TEMPLATE))
        migrate(database)
        database.close()

    def make_url(self, database: str) -> str:
        """Return the URL of a database, through the socket."""
        return f"postgresql+psycopg://{ADMIN}@/{database}?host={self.directory}"

    @property
    def _data(self) -> Path:
        return self.directory / "data"

    def _connect(self, database: str = ADMIN) -> psycopg.Connection:
        port = self.port or 5432
        return psycopg.connect(host=str(self.directory), port=port, user=ADMIN, dbname=database, autocommit=True)

    def _answers(self) -> bool:
        with suppress(psycopg.OperationalError):
            self._connect().close()
            return True
        return False

    def _run(self, command: list[str]) -> None:
        program = find_program(command[0])
        assert program is not None
        done = subprocess.run(
            [program, *command[1:]], user=self._user, cwd=self.directory, check=False, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr


@contextmanager
def run_postgres(port: int | None = None) -> Generator[PostgresServer]:
    """Run a server for as long as the block lasts; over TCP too where it has a port."""
    # Not below pytest's directories, which only their owner may enter; and a socket's path must be short.
    with TemporaryDirectory(prefix="dlrm-postgres-", ignore_cleanup_errors=True) as directory:
        server = PostgresServer(Path(directory), port)
        server.create()
        try:
            server.start()
            yield server
        finally:
            server.stop()


def find_free_port() -> int:
    with socket.socket() as listener:
        listener.bind((HOST, 0))
        return int(listener.getsockname()[1])
