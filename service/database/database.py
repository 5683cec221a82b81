"""Database access in short transactions, one kind for reading and one for writing."""

import sqlite3
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, Engine, create_engine, event, text
from sqlalchemy.engine import make_url
from sqlalchemy.orm import Session

from service.database.interruption import hold_session
from service.database.storable import dump_json
from service.times import read_clock

BUSY_TIMEOUT_SECONDS = 15
CONNECT_TIMEOUT_SECONDS = 5
"""Seconds for PostgreSQL to accept a connection, so that no request waits long for a machine that is gone."""
BUSY_PAUSE_SECONDS = 0.02
IDLE_TRANSACTION_SECONDS = 20.0
"""Seconds until PostgreSQL ends a transaction whose process sends nothing: it is stopped, and its locks would hold up
all others. Transactions here make one statement after the other."""
SQLITE_BEGIN = "sqlite_begin"
_LAST_ACTS = "last_acts"
"""Key of a session's `info`: what it does just before its commit, by the function that does it."""
_CHANGED_JOBS = "changed_jobs"
"""Key of a session's `info`: the ids of the jobs that it changes."""

OnChange = Callable[[frozenset[str]], None]
"""Function of the ids of the jobs that a transaction has changed."""


class Database:
    """The service's database: SQLite in a file, or PostgreSQL.

    Objects that a session has loaded stay readable after its transaction.
    """

    def __init__(self, url: str) -> None:
        self.engine = _create_engine(url)
        self._write_engine = self.engine.execution_options(**{SQLITE_BEGIN: "BEGIN IMMEDIATE"})
        self.on_change: OnChange | None = None
        """Called after each transaction of this process that has changed jobs, in the thread of that; None: nobody."""

    @contextmanager
    def read(self) -> Generator[Session]:
        """Open a session that only reads. Its statements may be interrupted, see `service.database.interruption`."""
        with Session(self.engine, expire_on_commit=False) as session, hold_session(session):
            yield session

    @contextmanager
    def write(self) -> Generator[Session]:
        """Open a session in a transaction. Commit it at the end of the block, or roll it back if the block raises."""
        with Session(self._write_engine, expire_on_commit=False) as session, session.begin():
            yield session
            for act, values in session.info.get(_LAST_ACTS, {}).items():
                act(session, values)
        changed = session.info.get(_CHANGED_JOBS)
        if changed and self.on_change is not None:
            self.on_change(frozenset(changed))

    @property
    def is_sqlite(self) -> bool:
        return self.engine.dialect.name == "sqlite"

    def read_time(self, session: Session) -> datetime:
        """Return the time by the clock of the database; on SQLite it is the clock of this machine."""
        if self.is_sqlite:
            return read_clock()
        return session.execute(text("SELECT clock_timestamp()")).scalar_one()

    def notify(self, channel: str, payload: str = "") -> None:
        """Send a notification to all processes that listen on `channel` of a PostgreSQL server; nothing on SQLite.

        payload: text that they get, of less than 8,000 bytes.
        """
        if not self.is_sqlite:
            with self.write() as session:
                session.execute(text("SELECT pg_notify(:channel, :payload)"), {"channel": channel, "payload": payload})

    def close(self) -> None:
        self.engine.dispose()


def add_last_act(session: Session, act: Callable[[Session, list[Any]], None], value: object) -> None:
    """Let the transaction of `Database.write` call `act` once, as the last thing before its commit.

    value: one of the values that `act` gets, in the order of these calls.
    """
    session.info.setdefault(_LAST_ACTS, {}).setdefault(act, []).append(value)


def note_change(session: Session, job_id: str) -> None:
    """Note that the transaction of a session changes a job, for `Database.on_change`."""
    session.info.setdefault(_CHANGED_JOBS, set()).add(job_id)


def _create_engine(url: str) -> Engine:
    parsed = make_url(url)
    if parsed.get_backend_name() != "sqlite":
        patience = {} if "connect_timeout" in parsed.query else {"connect_timeout": CONNECT_TIMEOUT_SECONDS}
        engine = create_engine(url, pool_pre_ping=True, connect_args=patience, json_serializer=dump_json)
        event.listen(engine, "connect", _prepare_postgresql)
        return engine
    engine = create_engine(
        url,
        pool_size=20,
        max_overflow=30,
        connect_args={"timeout": BUSY_TIMEOUT_SECONDS, "isolation_level": None},
        json_serializer=dump_json,
    )
    event.listen(engine, "connect", _prepare_sqlite)
    event.listen(engine, "begin", _begin_sqlite)
    return engine


def _prepare_postgresql(connection: Any, _: object) -> None:
    milliseconds = int(IDLE_TRANSACTION_SECONDS * 1000)
    connection.execute(f"SET idle_in_transaction_session_timeout = {milliseconds}")
    connection.commit()


def _prepare_sqlite(connection: Any, _: object) -> None:
    cursor = connection.cursor()
    _use_write_ahead_log(cursor)
    cursor.execute("PRAGMA synchronous = NORMAL")
    cursor.execute("PRAGMA foreign_keys = ON")
    cursor.close()


def _use_write_ahead_log(cursor: sqlite3.Cursor) -> None:
    """Switch the database file to write-ahead logging; all later connections use it too.

    SQLite's busy timeout does not apply where two connections switch at once, so this waits and tries again.
    """
    deadline = time.monotonic() + BUSY_TIMEOUT_SECONDS
    while True:
        try:
            cursor.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                raise
            time.sleep(BUSY_PAUSE_SECONDS)


def _begin_sqlite(connection: Connection) -> None:
    # A writer locks the database when it begins. A writer that reads first and then finds it locked would fail at once,
    # regardless of the busy timeout.
    connection.exec_driver_sql(connection.get_execution_options().get(SQLITE_BEGIN, "BEGIN"))
