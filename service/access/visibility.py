"""Limits of a sender: the jobs it may know of, and no lasting work from a signed-in browser."""

from sqlalchemy.orm import Session

from service.access.principal import Principal
from service.http.problems import forbidden, not_found
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


def refuse_browser(
    principal: Principal, work: str, remedy: str = "an API key as `Authorization: Bearer dlrm_…`"
) -> None:
    """Raise ProblemError if a request came from a signed-in browser, for what would outlive its session.

    It would outlive whoever has got hold of the session for a moment, too. work: what was asked for, such as `make
    keys`; remedy: what to send instead.
    """
    if principal.is_browser:
        raise forbidden(f"a signed-in browser cannot {work}, which would outlive its session; send {remedy}")
