"""Resources for jobs, as every process of the service knows them: those of the leader, which starts them."""

from collections.abc import Callable

from service.database import Database
from service.launchers.protocol import Capacity
from service.leader.repository import LeaderRepository


class KnownCapacity:
    """Capacity that the leader has told."""

    def __init__(self, database: Database, get_own: Callable[[], Capacity]) -> None:
        """Take what `get_own` returns, the capacity of this process, until a leader has told its own."""
        self._database = database
        self._get_own = get_own

    def read(self) -> Capacity:
        with self._database.read() as session:
            leader = LeaderRepository(session).get()
        if leader is None or leader.capacity is None:
            return self._get_own()
        return Capacity(**leader.capacity)
