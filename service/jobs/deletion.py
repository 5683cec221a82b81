"""Deletion of jobs that have ended: a job is first hidden, then its files are removed, then its rows.

Files that the service does not see, in a bucket or on disks of other machines, stay where they are.
So a job is never half shown, wherever the service is killed: what is hidden stays hidden, and is removed later.
"""

import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated

import structlog
from sqlalchemy.orm import Session

from service.access.principal import Principal
from service.access.visibility import get_visible_job
from service.audit.log import AuditLog
from service.audit.models import AuditAction
from service.database import Database
from service.http.problems import conflict
from service.jobs.actions import require_end
from service.jobs.schemas import DeletedJobView, JobDetail
from service.parts import depend_on
from service.store.idempotency_repository import IdempotencyRepository
from service.store.job_repository import JobRepository
from service.store.models import Job
from service.store.pace import Pace
from service.store.removal import RemovalRepository
from service.store.run_facts import RunFacts
from service.times import now

log = structlog.get_logger(__name__)

MAX_JOBS = 100
"""Jobs whose files are removed before their rows are, at most."""


class DeletionService:
    def __init__(
        self,
        database: Database,
        runs_directory: Path,
        audit: AuditLog,
        facts: RunFacts,
        on_change: Callable[[], None],
        *,
        retry_seconds: float = 60.0,
    ) -> None:
        """Call `on_change` where `finish_deletions` has something to do.

        retry_seconds: time for which it leaves a job alone after failing to remove it.
        """
        self._database = database
        self._runs_directory = runs_directory
        self._audit = audit
        self._facts = facts
        self._on_change = on_change
        self._retry_seconds = retry_seconds
        self._retry_times: dict[str, float] = {}

    def delete(self, job_id: str, principal: Principal) -> DeletedJobView:
        """Mark a job that has ended as deleted, hiding it at once, and return what it was.

        What is returned says where files stay, since the service does not see them.
        `finish_deletions` removes its files and rows. Its idempotency key is forgotten, so that the request that
        created it creates a new one. Raises ProblemError if there is no such job that `principal` may know of, it
        has not ended, another job starts from its model, or its run directory is not if it should be.
        """
        with self._database.write() as session:
            job = get_visible_job(session, job_id, principal, for_update=True)
            require_end(job, "deleted")
            _refuse_to_leave_heirs(session, job, principal)
            try:
                if self._facts.shares_files(job):
                    find_run_directory(job, self._runs_directory)
            except RunDirectoryError as error:
                raise conflict(f"{job_id} cannot be deleted: {error}") from None
            JobRepository(session).update(job_id, deleting_at=now())
            self._audit.record(
                session, principal.actor, AuditAction.JOB_DELETED, job_id, owner=job.owner, name=job.name
            )
            IdempotencyRepository(session).forget_jobs([job_id])
            view = JobDetail.read(session, job, self._facts).model_dump()
            left_at = self._facts.find_left_files(job)
        self._on_change()
        return DeletedJobView(**view, files_left_at=left_at)

    def finish_deletions(self, pace: Pace) -> None:
        """Remove the files and rows of the jobs that are being deleted, until `pace` is over.

        What fails in one job is logged and tried again later, and holds up no other job. The leader calls this again
        and again; calls at the same time do no harm.
        """
        begun = time.monotonic()
        while not pace.is_over() and (jobs := self._list_due(begun)):
            without_files = [job for job in jobs if not pace.is_over() and self._remove_files(job, pace.is_over)]
            self._remove_rows(without_files, pace)

    def _list_due(self, time_now: float) -> list[Job]:
        """List jobs that are being deleted, without failed ones before their next try."""
        with self._database.read() as session:
            jobs = RemovalRepository(session).list_deleting(MAX_JOBS + len(self._retry_times))
        self._retry_times = {job.id: self._retry_times[job.id] for job in jobs if job.id in self._retry_times}
        return [job for job in jobs if time_now >= self._retry_times.get(job.id, 0.0)][:MAX_JOBS]

    def _remove_files(self, job: Job, is_over: Callable[[], bool]) -> bool:
        """Remove the files of a job that the service sees; return whether none is left."""
        try:
            if not self._facts.shares_files(job):
                return True
            return remove_directory(find_run_directory(job, self._runs_directory), is_over)
        except (OSError, RunDirectoryError, RecursionError) as error:
            self._retry_times[job.id] = time.monotonic() + self._retry_seconds
            log.error("deletion_failed", job=job.id, error=str(error))
            return False

    def _remove_rows(self, jobs: Sequence[Job], pace: Pace) -> None:
        """Remove the rows of jobs without files, a few in each transaction.

        A job with many reports has many rows: removed at once, they would hold up the reports of others.
        """
        owners = {job.id: job.owner for job in jobs}
        while owners and not pace.is_over():
            with pace.piece(), self._database.write() as session:
                removed = RemovalRepository(session).remove_some(list(owners), pace.num_rows)
            for job_id in removed:
                log.info("job_deleted", job=job_id, owner=owners.pop(job_id))


Deletions = Annotated[DeletionService, depend_on(DeletionService)]
"""Parameter type of an endpoint that needs the service."""


def _refuse_to_leave_heirs(session: Session, job: Job, principal: Principal) -> None:
    """Raise ProblemError if a job that has not ended starts from the model of `job`."""
    heir = JobRepository(session).find_heir(job.id)
    if heir is None:
        return
    name = heir.id if principal.may_see(heir.owner) else "a job of another owner"
    advice = "wait for its end, or cancel it" if principal.may_see(heir.owner) else "wait for its end"
    raise conflict(f"{name}, which has not ended, starts from the model of {job.id}: {advice}")


class RunDirectoryError(Exception):
    """Run directory that is not where this service keeps its jobs' directories; it is not removed."""


def find_run_directory(job: Job, runs_directory: Path) -> Path:
    """Return the real path of the run directory of `job`, which need not exist.

    Raises RunDirectoryError if it is not directly below `runs_directory` with the id of the job as its name, and
    if it is a link or a file.
    """
    path, real_parent = Path(job.run_directory), runs_directory.resolve()
    if path.name != job.id or path.parent.resolve() != real_parent:
        raise RunDirectoryError(f"{path} is not a directory of {runs_directory} named as the job is")
    if path.is_symlink() or (path.exists() and not path.is_dir()):
        raise RunDirectoryError(f"{path} is no directory: remove it yourself, and what it leads to")
    return real_parent / job.id


def remove_directory(path: Path, is_over: Callable[[], bool]) -> bool:
    """Remove a directory with everything in it, and return whether it is gone.

    Links are removed, and never followed. What is missing already is no error. If something cannot be removed, the
    rest is, and then the first OSError is raised. After each file, `is_over` says whether to leave the rest to a later
    call; this returns False then.
    """
    errors: list[OSError] = []
    # os.fwalk works with open directories: nobody can put a link in the place of one that is being walked.
    try:
        for _, directories, files, directory in os.fwalk(path, topdown=False, onerror=errors.append):
            for name in files + directories:
                try:
                    _remove_entry(name, directory)
                except OSError as error:
                    errors.append(error)
                if is_over():
                    return False
        path.rmdir()
    except OSError as error:
        errors.append(error)
    errors = [error for error in errors if not isinstance(error, FileNotFoundError)]
    if errors:
        raise errors[0]
    return True


def _remove_entry(name: str, directory: int) -> None:
    """Remove a file, a link or an empty directory. directory: descriptor of the directory in which it is."""
    try:
        os.unlink(name, dir_fd=directory)
    except IsADirectoryError:
        os.rmdir(name, dir_fd=directory)
