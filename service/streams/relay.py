"""Relay of changes between the processes of a service that share a PostgreSQL server."""

import secrets
import threading

import structlog
from sqlalchemy.exc import SQLAlchemyError

from service.database import Database
from service.streams.feed import Feed

CHANNEL = "dlrm_changes"
"""Channel of PostgreSQL's notifications, with the ids of changed jobs."""
PAUSE_SECONDS = 0.25
"""Time between two notifications of one process. Each is a transaction of its own: those with a notification commit one
after the other, and reports should not wait for that."""
MAX_JOBS = 150
"""Jobs of one notification, whose text is bounded; of more it says that anything may have changed."""
ANY = "*"
RETRY_SECONDS = 1.0
"""Time after which a lost connection is made again."""

log = structlog.get_logger(__name__)


class Relay:
    """Relays the changes of all processes to the feed of this one, and its own to the others.

    On SQLite there is one process alone. What is lost while the server is away, the feed finds in its table of events.
    """

    def __init__(self, database: Database, feed: Feed) -> None:
        self._database = database
        self._feed = feed
        self._name = secrets.token_hex(6)
        """Name of this process in its notifications, which it does not need itself."""
        self._lock = threading.Lock()
        self._changed: set[str] = set()
        self._is_changed = threading.Event()
        self._is_closed = threading.Event()
        self._threads: list[threading.Thread] = []

    def note(self, job_ids: frozenset[str]) -> None:
        """Note that this process has changed jobs."""
        self._feed.note(job_ids)
        if not self._database.is_sqlite:
            with self._lock:
                self._changed |= job_ids
            self._is_changed.set()

    def start(self) -> None:
        """Begin to listen, and to notify other processes."""
        if not self._database.is_sqlite:
            for work in (self._listen, self._notify):
                thread = threading.Thread(target=work, name=f"relay{work.__name__}", daemon=True)
                self._threads.append(thread)
                thread.start()

    def close(self) -> None:
        self._is_closed.set()
        self._is_changed.set()
        for thread in self._threads:
            thread.join()

    def _notify(self) -> None:
        while not self._is_closed.wait(PAUSE_SECONDS):
            self._is_changed.wait()
            self._is_changed.clear()
            with self._lock:
                changed, self._changed = self._changed, set[str]()
            if not changed:
                continue
            names = sorted(changed) if len(changed) <= MAX_JOBS else [ANY]
            try:
                self._database.notify(CHANNEL, " ".join([self._name, *names]))
            except SQLAlchemyError as error:
                log.warning("changes_not_relayed", error=str(error).partition("\n")[0])

    def _listen(self) -> None:
        # The driver is an optional package.
        from service.database.notifications import listen

        while not self._is_closed.is_set():
            # What came before it listens was not heard.
            listen(self._database, CHANNEL, self._feed.note_all, self._hear, self._is_closed.is_set)
            self._is_closed.wait(RETRY_SECONDS)

    def _hear(self, payload: str) -> None:
        sender, *names = payload.split(" ")
        if sender != self._name:
            if ANY in names:
                self._feed.note_all()
            else:
                self._feed.note(frozenset(names))
