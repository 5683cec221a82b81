"""Retention at work: a bounded number of jobs a round is hidden, which the deletion then removes."""

import contextlib
import os
import time
from collections.abc import Iterator, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any, TypeVar

import structlog

from service.access.principal import SERVICE
from service.audit.log import AuditLog
from service.audit.models import AuditAction
from service.database import Database
from service.observability.telemetry import Telemetry
from service.parts import depend_on
from service.retention.repository import RetentionRepository
from service.retention.rules import RetentionRules
from service.schemas import DueJob, RetentionPreview
from service.store.models import Job
from service.store.pace import Pace
from service.store.removal import RemovalRepository
from service.store.run_facts import RunFacts
from service.times import now

Item = TypeVar("Item")

log = structlog.get_logger(__name__)

INTERVAL_SECONDS = 60.0
"""Seconds between two rounds; one that had more to do than it may is followed by the next at once."""
MAX_JOBS = 1000
"""Jobs that a round hides at most; it measures as many."""
PIECE_JOBS = 50
"""Jobs of one transaction."""
NUM_SHOWN = 100
"""Jobs that a preview lists."""


class RetentionService:
    def __init__(
        self,
        database: Database,
        rules: RetentionRules,
        point_days: float | None,
        audit: AuditLog,
        facts: RunFacts,
        telemetry: Telemetry,
    ) -> None:
        """Remove jobs by `rules`, and raw points of jobs that ended more than `point_days` ago; None keeps them."""
        self._database = database
        self._rules = rules
        self._point_days = point_days
        self._audit = audit
        self._facts = facts
        self._telemetry = telemetry
        self._due_at = 0.0

    def preview(self, rules: RetentionRules | None) -> RetentionPreview:
        """Return what `rules` would remove now; None: the rules of the service. Nothing is removed."""
        rules = rules or self._rules
        with self._database.read() as session:
            repository, time_now = RetentionRepository(session), now()
            number, num_bytes = repository.sum_due(rules, time_now)
            due = repository.list_due(rules, time_now, NUM_SHOWN)
        return RetentionPreview(
            **vars(rules), point_days=self._point_days, num_jobs=number, num_bytes=num_bytes, items=due
        )

    def run(self, pace: Pace) -> None:
        """Make a round, if one is due: measure run directories, hide the jobs that go, remove raw points."""
        if time.monotonic() < self._due_at:
            return
        self._due_at = time.monotonic() + INTERVAL_SECONDS
        is_measured = self._measure(pace)
        is_done = self._rules.are_off or self._hide(pace)
        if self._point_days is not None:
            self._remove_points(pace, self._point_days)
        if not (is_measured and is_done):
            self._due_at = 0.0

    def _measure(self, pace: Pace) -> bool:
        """Measure run directories of jobs that have ended; return whether all are measured."""
        with self._database.read() as session:
            jobs = RetentionRepository(session).list_unmeasured(MAX_JOBS)
        for some in _until_over(jobs, pace):
            sizes = {
                job.id: _sum_bytes(Path(job.run_directory)) if self._facts.shares_files(job) else 0 for job in some
            }
            with pace.piece(), self._database.write() as session:
                RetentionRepository(session).add_sizes(sizes)
        return len(jobs) < MAX_JOBS

    def _hide(self, pace: Pace) -> bool:
        """Hide jobs that the rules choose; return whether none is left to hide."""
        with self._database.read() as session:
            due = RetentionRepository(session).list_due(self._rules, now(), MAX_JOBS)
        num_hidden = 0
        for some in _until_over(due, pace):
            with pace.piece():
                num_hidden += self._hide_some({job.id: job for job in some})
        if num_hidden:
            log.info("retention", jobs=num_hidden, **vars(self._rules))
        return len(due) < MAX_JOBS

    def _hide_some(self, due: dict[str, DueJob]) -> int:
        """Hide the jobs that may still go; return how many."""
        with self._database.write() as session:
            hidden = RetentionRepository(session).mark(list(due), now())
            details = {job.id: self._describe(job, due[job.id]) for job in hidden}
            self._audit.record_all(session, SERVICE, AuditAction.JOB_EXPIRED, details)
        self._telemetry.removed_jobs.inc(len(hidden))
        self._telemetry.removed_bytes.inc(sum(due[job.id].num_bytes or 0 for job in hidden))
        return len(hidden)

    def _describe(self, job: Job, due: DueJob) -> dict[str, Any]:
        """Return what the audit log keeps of a job that goes."""
        facts = {"owner": job.owner, "name": job.name, "reason": due.reason, "num_bytes": due.num_bytes}
        return {**facts, "files_left_at": self._facts.find_left_files(job)}

    def _remove_points(self, pace: Pace, days: float) -> None:
        """Remove raw points of at most MAX_JOBS jobs that ended more than so many days ago."""
        before = now() - timedelta(days=days)
        with self._database.read() as session:
            left: list[str] = RetentionRepository(session).list_with_points(before, MAX_JOBS)
        num_jobs = len(left)
        while left and not pace.is_over():
            with pace.piece(), self._database.write() as session:
                done = RemovalRepository(session).remove_points(left, pace.num_rows)
            left = left[len(done) :]
        if num_jobs:
            log.info("raw_points_removed", jobs=num_jobs - len(left), days=days)


Retention = Annotated[RetentionService, depend_on(RetentionService)]
"""Parameter type of an endpoint that needs the service."""


def _until_over(items: Sequence[Item], pace: Pace) -> Iterator[Sequence[Item]]:
    """Yield items in pieces until `pace` is over."""
    for start in range(0, len(items), PIECE_JOBS):
        if pace.is_over():
            return
        yield items[start : start + PIECE_JOBS]


def _sum_bytes(path: Path) -> int:
    """Sum up the bytes of the files in a directory; links are not followed, and what cannot be read counts 0."""
    total = 0
    with contextlib.suppress(OSError):
        for _, _, names, directory in os.fwalk(path):
            for name in names:
                with contextlib.suppress(OSError):
                    total += os.stat(name, dir_fd=directory, follow_symlinks=False).st_size
    return total
