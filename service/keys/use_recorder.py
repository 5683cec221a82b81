"""Record of when each key was last used."""

import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta

import structlog
from sqlalchemy.exc import SQLAlchemyError

from service.database import Database
from service.keys.models import ApiKey
from service.keys.repository import KeyRepository
from service.times import now

log = structlog.get_logger(__name__)

INTERVAL = timedelta(minutes=1)
"""Time between two records of one key at least."""


class UseRecorder:
    """Recorder of the last uses of keys. It writes in a thread of its own, so that no request waits for that."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="key-uses")
        self._lock = threading.Lock()
        self._recorded: dict[str, datetime] = {}
        """Time of the last record of each key by this process."""
        self._is_closed = False

    def record(self, key: ApiKey) -> None:
        """Record that a key is used now, unless its use was recorded within the last minute."""
        at = now()
        with self._lock:
            last = max((time for time in (key.last_used_at, self._recorded.get(key.id)) if time), default=None)
            if self._is_closed or (last is not None and at - last < INTERVAL):
                return
            self._recorded[key.id] = at
            self._writer.submit(self._write, key.id, at)

    def close(self) -> None:
        """Write what is left, and end the thread."""
        with self._lock:
            self._is_closed = True
        self._writer.shutdown()

    def _write(self, key_id: str, at: datetime) -> None:
        try:
            with self._database.write() as session:
                KeyRepository(session).set_last_used(key_id, at, INTERVAL)
        except SQLAlchemyError as error:
            # Such as a full disk: the time is a courtesy, and the next use is recorded again.
            log.warning("key_use_not_recorded", key=key_id, error=str(error))
            with self._lock:
                self._recorded.pop(key_id, None)
