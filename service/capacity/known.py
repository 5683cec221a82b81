"""Resources for jobs, as every process of the service knows them: the leader's, since the leader starts the jobs."""

from collections.abc import Callable, Mapping
from typing import Annotated, Any

from pydantic import TypeAdapter

from service.database import Database
from service.launchers.protocol import Capacity, LauncherCapacity
from service.launchers.registry import Launchers
from service.leader.repository import LeaderRepository
from service.parts import depend_on
from service.store.job_repository import JobRepository

KnownCapacities = Mapping[str, LauncherCapacity | None]
"""Capacity by name of the launcher; None if it is not known."""
_DOCUMENT = TypeAdapter(dict[str, LauncherCapacity | None])


class KnownCapacity:
    """Capacities that the leader has reported."""

    def __init__(self, database: Database, get_own: Callable[[], KnownCapacities]) -> None:
        """Take what `get_own` returns, the capacities of this process, until a leader has reported its own."""
        self._database = database
        self._get_own = get_own

    def read(self) -> KnownCapacities:
        with self._database.read() as session:
            leader = LeaderRepository(session).get()
        if leader is None or leader.capacity is None:
            return self._get_own()
        return parse_capacities(leader.capacity)

    def read_free(self, capacities: KnownCapacities) -> dict[str, Capacity | None]:
        """Return by launcher the part of `capacities` that no job holds; None if it is not known."""
        with self._database.read() as session:
            jobs = JobRepository(session)
            return {
                name: capacity and capacity.total.minus(jobs.sum_reserved_capacity(name))
                for name, capacity in capacities.items()
            }


Capacities = Annotated[KnownCapacity, depend_on(KnownCapacity)]
"""Parameter type of an endpoint that needs the service."""


def measure_capacities(launchers: Launchers) -> KnownCapacities:
    """Ask each launcher for what its jobs may occupy."""
    return {name: launcher.capacity() for name, launcher in launchers.items()}


def dump_capacities(capacities: KnownCapacities) -> dict[str, Any]:
    """Return capacities as JSON values."""
    return _DOCUMENT.dump_python(dict(capacities), mode="json")


def parse_capacities(document: Mapping[str, Any]) -> KnownCapacities:
    """Parse what `dump_capacities` returns, or a version of the service that had one launcher."""
    if "num_cores" in document:
        only = Capacity(**document)
        return {"local": LauncherCapacity(only, only)}
    return _DOCUMENT.validate_python(document)
