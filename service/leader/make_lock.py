"""Choice of the lock that suits the kind of database."""

from collections.abc import Callable

from service.database import Database
from service.leader.lock import LeaderLock, SoleProcessLock


def make_lock(database: Database, on_notify: Callable[[], None]) -> LeaderLock:
    """Make the lock of this service. on_notify: called, in another thread, when a process wakes the leader."""
    if database.is_sqlite:
        return SoleProcessLock()
    # Imported here: the driver is an optional package.
    from service.leader.advisory_lock import AdvisoryLock

    return AdvisoryLock(database, on_notify)
