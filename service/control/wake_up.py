"""Signal that ends the pause of the control loop early, from this process or another one of the service."""

import threading
from collections.abc import Callable

import structlog
from sqlalchemy.exc import SQLAlchemyError

from service.database import Database
from service.leader.lock import CHANNEL

log = structlog.get_logger(__name__)


class WakeUp:
    """Signal within this process."""

    def __init__(self) -> None:
        self._event = threading.Event()

    def __call__(self) -> None:
        self._event.set()

    def wait(self, timeout_seconds: float) -> None:
        self._event.wait(timeout_seconds)
        self._event.clear()


def make_wake_leader(wake_up: WakeUp, database: Database) -> Callable[[], None]:
    """Make a function that wakes the control loop of the leader, whichever process leads."""

    def wake_leader() -> None:
        wake_up()
        try:
            database.notify(CHANNEL)
        except SQLAlchemyError as error:
            # What was done is stored, and the leader finds it in its next round.
            log.warning("leader_not_woken", error=str(error).partition("\n")[0])

    return wake_leader
