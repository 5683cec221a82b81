"""Free resources of the machine: all of them, minus those that jobs occupy."""

from service.database import Database
from service.jobs.repository import JobRepository
from service.launchers.protocol import Capacity


def compute_free_capacity(database: Database, total: Capacity) -> Capacity:
    """Compute the part of `total` that no job holds."""
    with database.read() as session:
        num_cores, memory_bytes, num_gpus = JobRepository(session).sum_reserved_capacity()
    return total.minus(Capacity(num_cores, memory_bytes, num_gpus))
