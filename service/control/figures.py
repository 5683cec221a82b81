"""Figures of the database, the machines and the disk, which are read when Prometheus asks for them."""

import shutil
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from prometheus_client.core import GaugeMetricFamily
from sqlalchemy import func, select, text

from service.capacity.known import KnownCapacity
from service.database import Database
from service.observability.telemetry import Telemetry
from service.retention.models import RunSize
from service.settings import Settings
from service.store.job_repository import JobRepository
from service.store.models import Job
from service.store.states import JobState
from service.times import now

COUNT_SECONDS = 5.0
"""Seconds for which counts of jobs are taken as they were."""
SIZE_SECONDS = 60.0
"""Seconds for which sizes are taken as they were."""


@dataclass(frozen=True)
class Figures:
    """Reader of figures; each method reads a few rows, or counts in an index."""

    database: Database
    settings: Settings
    capacities: KnownCapacity

    def register(self, telemetry: Telemetry) -> None:
        telemetry.read_at_scrape(self._count_jobs, COUNT_SECONDS)
        telemetry.read_at_scrape(self._read_capacity, COUNT_SECONDS)
        telemetry.read_at_scrape(self._measure_sizes, SIZE_SECONDS)

    def _count_jobs(self) -> Sequence[GaugeMetricFamily]:
        with self.database.read() as session:
            counts = JobRepository(session).count_by_state()
            waiting = session.execute(
                select(Job.launcher, func.count(), func.min(Job.created_at), func.min(Job.at_head_since))
                .where(Job.state == JobState.QUEUED, Job.is_held.is_(False))
                .group_by(Job.launcher)
            ).all()
        time = now()
        rows = {
            launcher: (number, (time - oldest).total_seconds(), (time - head).total_seconds() if head else 0.0)
            for launcher, number, oldest, head in waiting
        }
        figures = [(name, *rows.get(name, (0, 0.0, 0.0))) for name in sorted({*self.settings.launchers, *rows})]
        return [
            _make("dlrm_jobs", "Jobs by state", "state", ((state, counts.get(state, 0)) for state in JobState)),
            _make(
                "dlrm_queue_jobs", "Waiting jobs that nobody holds", "launcher", ((row[0], row[1]) for row in figures)
            ),
            _make(
                "dlrm_queue_oldest_seconds",
                "Time since the submission of the oldest waiting job",
                "launcher",
                ((row[0], row[2]) for row in figures),
            ),
            _make(
                "dlrm_queue_head_wait_seconds",
                "Time for which the first waiting job has found no room",
                "launcher",
                ((row[0], row[3]) for row in figures),
            ),
        ]

    def _read_capacity(self) -> Sequence[GaugeMetricFamily]:
        known = self.capacities.read()
        totals = {name: capacity.total for name, capacity in known.items() if capacity is not None}
        free = {name: capacity for name, capacity in self.capacities.read_free(known).items() if capacity is not None}
        resources = (
            ("dlrm_cores", "Cores", "num_cores"),
            ("dlrm_memory_bytes", "Memory", "memory_bytes"),
            ("dlrm_gpus", "GPUs", "num_gpus"),
        )
        return [
            _make(
                f"{name}{suffix}",
                f"{noun} {meaning}",
                "launcher",
                ((launcher, getattr(capacity, field)) for launcher, capacity in capacities.items()),
            )
            for suffix, meaning, capacities in (("", "for jobs", totals), ("_free", "that no job occupies", free))
            for name, noun, field in resources
        ]

    def _measure_sizes(self) -> Sequence[GaugeMetricFamily]:
        query = "SELECT pg_database_size(current_database())"
        if self.database.is_sqlite:
            query = "SELECT page_count * page_size FROM pragma_page_count(), pragma_page_size()"
        with self.database.read() as session:
            database_bytes = session.execute(text(query)).scalar_one()
            run_bytes = session.scalar(select(func.sum(RunSize.num_bytes))) or 0
        places = {"state": self.settings.state_directory, "runs": self.settings.runs_directory}
        disks = {name: shutil.disk_usage(path) for name, path in places.items()}
        return [
            GaugeMetricFamily("dlrm_database_bytes", "Size of the database", value=float(database_bytes)),
            GaugeMetricFamily("dlrm_run_bytes", "Bytes of the run directories of ended jobs", value=float(run_bytes)),
            _make(
                "dlrm_disk_bytes", "Size of the disk", "directory", ((name, disk.total) for name, disk in disks.items())
            ),
            _make(
                "dlrm_disk_bytes_free",
                "Free bytes on it",
                "directory",
                ((name, disk.free) for name, disk in disks.items()),
            ),
        ]


def _make(name: str, meaning: str, label: str, values: Iterable[tuple[str, float]]) -> GaugeMetricFamily:
    """Make a metric with one label."""
    family = GaugeMetricFamily(name, meaning, labels=[label])
    for value, number in values:
        family.add_metric([value], number)
    return family
