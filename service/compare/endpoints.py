"""Endpoint /v1/compare."""

from typing import Annotated

from fastapi import APIRouter, Query

from dlrm.config import FieldError
from service.access.senders import Viewer
from service.access.visibility import get_visible_job
from service.compare.comparison import Candidate, compare_jobs
from service.database import Database
from service.http.limits import LISTS
from service.http.problem_kinds import may_answer
from service.http.problems import invalid_request
from service.http.route import ApiRoute, runs_in
from service.parts import depend_on
from service.schemas import Comparison
from service.store.job_repository import JobRepository

router = APIRouter(prefix="/v1/compare", tags=["jobs"], route_class=ApiRoute)

MAX_JOBS = 20
"""Largest number of jobs that are compared at once."""
_VALID = f"2 to {MAX_JOBS} different ids, separated by commas"


@router.get("")
@may_answer("not-found")
@runs_in(LISTS)
def compare(
    ids: Annotated[str, Query(max_length=1000, description=f"ids of the jobs: {_VALID}")],
    database: Annotated[Database, depend_on(Database)],
    principal: Viewer,
) -> Comparison:
    """Compare jobs: the settings in which they differ, and their final figures with the best one of each.

    Jobs that differ in `run.seed` alone, or in the label `seed` too, are one group: its figures are means with 95 %
    intervals by Student's t.
    """
    names = [name.strip() for name in ids.split(",")]
    if not 2 <= len(set(names)) == len(names) <= MAX_JOBS:
        raise invalid_request([FieldError("ids", f"has {len(set(names))} different ids of {len(names)}", _VALID)])
    with database.read() as session:
        jobs, repository = [get_visible_job(session, name, principal) for name in names], JobRepository(session)
        return compare_jobs(
            [Candidate(job, repository.get_document(job.id), repository.get_labels(job.id)) for job in jobs]
        )
