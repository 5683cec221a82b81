"""Lock that at most one process of a service holds: an advisory lock of PostgreSQL, or nothing on SQLite."""

from collections.abc import Callable
from typing import Protocol

LOCK_KEY = 0x646C726D_6C656164
"""Key of the advisory lock. Locks of other databases of the same server do not collide with it."""
CHANNEL = "dlrm_control"
"""Channel of PostgreSQL's notifications on which processes wake the leader."""


class LeaderLock(Protocol):
    """Lock of the leader, which the database frees when its holder ends."""

    @property
    def is_held(self) -> bool: ...

    def try_acquire(self, is_stuck: Callable[[], bool]) -> bool:
        """Acquire the lock if it is free. Return whether this process holds it.

        It is given up once `is_stuck`, called in another thread, finds that the holder makes no progress.
        """
        ...

    def release(self) -> None: ...


class SoleProcessLock:
    """Lock on SQLite. Only one process serves a database file, which `service.serve` ensures: it needs no lock."""

    def __init__(self) -> None:
        self._is_held = False

    @property
    def is_held(self) -> bool:
        return self._is_held

    def try_acquire(self, is_stuck: Callable[[], bool]) -> bool:  # noqa: ARG002
        self._is_held = True
        return True

    def release(self) -> None:
        self._is_held = False
