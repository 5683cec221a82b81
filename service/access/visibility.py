"""Jobs that a sender may know of: the jobs of its owner, and all for an admin."""

from sqlalchemy.orm import Session

from service.access.principal import Principal
from service.http.problems import not_found
from service.store.job_repository import JobRepository
from service.store.models import Job


def get_visible_job(session: Session, job_id: str, principal: Principal, *, for_update: bool = False) -> Job:
    """Return the job with this id; with `for_update`, lock its row until the transaction ends.

    Raises ProblemError if there is none that `principal` may know of; it does not say whether another owner has it.
    """
    job = JobRepository(session).get(job_id, for_update=for_update)
    if job is None or job.deleting_at is not None or not principal.may_see(job.owner):
        raise not_found("job", job_id)
    return job
