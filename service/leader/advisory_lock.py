"""Advisory lock of PostgreSQL. Imported on PostgreSQL alone: its driver is an optional package."""

import contextlib
import threading
from collections.abc import Callable

import psycopg
import structlog

from service.database import Database
from service.database.notifications import make_conninfo, wait_for_notification
from service.leader.lock import CHANNEL, LOCK_KEY

log = structlog.get_logger(__name__)

SERVER_KEEPALIVES = ("tcp_keepalives_idle = 2", "tcp_keepalives_interval = 1", "tcp_keepalives_count = 3")
"""Settings of the server for this connection: the lock of a machine that is gone is free within some 5 s."""


class AdvisoryLock:
    """Advisory lock of PostgreSQL, held by a connection of its own, which also receives the notifications."""

    def __init__(self, database: Database, on_notify: Callable[[], None]) -> None:
        """Call `on_notify`, in another thread, when a process wakes the leader or the lock is lost."""
        self._conninfo = make_conninfo(database, "leader")
        self._on_notify = on_notify
        self._connection: psycopg.Connection | None = None
        self._is_released = threading.Event()
        self._listener: threading.Thread | None = None

    @property
    def is_held(self) -> bool:
        return self._connection is not None

    def try_acquire(self, is_stuck: Callable[[], bool]) -> bool:
        if self._connection is not None:
            return True
        connection = psycopg.connect(self._conninfo, autocommit=True)
        row = connection.execute("SELECT pg_try_advisory_lock(%s)", [LOCK_KEY]).fetchone()
        if row != (True,):
            connection.close()
            return False
        for setting in SERVER_KEEPALIVES:
            connection.execute(f"SET {setting}".encode())
        connection.execute(f"LISTEN {CHANNEL}".encode())
        self._connection = connection
        self._is_released.clear()
        arguments = (connection, is_stuck)
        self._listener = threading.Thread(target=self._listen, args=arguments, name="leader-lock", daemon=True)
        self._listener.start()
        return True

    def release(self) -> None:
        self._is_released.set()
        if self._listener is not None:
            self._listener.join()

    def _listen(self, connection: psycopg.Connection, is_stuck: Callable[[], bool]) -> None:
        try:
            while not self._is_released.is_set():
                if is_stuck():
                    log.error("leader_lock_given_up", reason="the control loop makes no progress")
                    return
                for _ in wait_for_notification(connection):
                    self._on_notify()
                connection.execute("SELECT 1")
        except psycopg.Error as error:
            log.warning("leader_lock_lost", error=str(error).strip())
        finally:
            self._connection = None
            with contextlib.suppress(psycopg.Error):
                # The server would free it some time after the connection is closed.
                connection.execute("SELECT pg_advisory_unlock(%s)", [LOCK_KEY])
                connection.close()
            self._on_notify()
