"""Free resources of a launcher: all of them, minus those that jobs occupy."""

from service.capacity.known import KnownCapacities
from service.database import Database
from service.jobs.repository import JobRepository
from service.launchers.protocol import Capacity


def compute_free_capacities(database: Database, capacities: KnownCapacities) -> dict[str, Capacity | None]:
    """Compute by launcher the part of the resources that no job holds; None if they are not known."""
    with database.read() as session:
        jobs = JobRepository(session)
        return {
            name: capacity and capacity.total.minus(jobs.sum_reserved_capacity(name))
            for name, capacity in capacities.items()
        }
