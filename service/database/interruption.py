"""Interruption of the statements of one call, whose caller does not want its result any more."""

import sqlite3
import threading
from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from sqlalchemy.orm import Session

CANCEL_SECONDS = 5.0
"""Longest time for a PostgreSQL server to take note of an interruption."""


class InterruptedCallError(Exception):
    """Error raised in a call that was interrupted, instead of its next statement."""


class Interruptible:
    """The statements of one call, which another thread may interrupt."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        """Held while a connection is interrupted, so that it does not go to another call meanwhile."""
        self._is_interrupted = False
        self._connection: Any = None

    def interrupt(self) -> None:
        """Stop the statement that runs, and let no other one begin. May be repeated, from another thread."""
        with self._lock:
            self._is_interrupted = True
            if isinstance(self._connection, sqlite3.Connection):
                self._connection.interrupt()
            elif self._connection is not None:
                self._connection.cancel_safe(timeout=CANCEL_SECONDS)

    @contextmanager
    def hold(self, connection: Any) -> Generator[None]:
        """Let the statements of a connection of the driver be interrupted within the block.

        Raises InterruptedCallError if the call was interrupted already.
        """
        with self._lock:
            if self._is_interrupted:
                raise InterruptedCallError
            self._connection = connection
        try:
            yield
        finally:
            with self._lock:
                self._connection = None


_current: ContextVar[Interruptible | None] = ContextVar("interruptible", default=None)


@contextmanager
def let_be_interrupted(interruptible: Interruptible) -> Generator[None]:
    """Let the sessions of the block be interrupted, even in threads of its calls."""
    token = _current.set(interruptible)
    try:
        yield
    finally:
        _current.reset(token)


@contextmanager
def hold_session(session: Session) -> Generator[None]:
    """Let the statements of a session be interrupted within the block, if that is part of such a call."""
    interruptible = _current.get()
    if interruptible is None:
        yield
        return
    with interruptible.hold(session.connection().connection.driver_connection):
        yield
