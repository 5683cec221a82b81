"""Endpoints /v1/compare and /v1/results."""

from typing import Annotated

from fastapi import APIRouter, Query

from dlrm.config import FieldError
from service.access.senders import Viewer
from service.access.visibility import get_visible_job
from service.compare.comparison import compare_jobs
from service.compare.groups import Candidate
from service.compare.results import make_table
from service.database import Database
from service.http.answers import need_slot
from service.http.limits import LISTS
from service.http.problem_kinds import may_answer
from service.http.problems import invalid_request
from service.http.query import LabelFilter, parse_label
from service.http.route import ApiRoute, runs_in
from service.parts import depend_on
from service.schemas import Comparison, ResultTable
from service.store.job_lists import JobFilter, JobLists
from service.store.job_repository import JobRepository

router = APIRouter(prefix="/v1", tags=["jobs"], route_class=ApiRoute)

MAX_JOBS = 20
"""Largest number of jobs that are compared at once."""
_VALID = f"2 to {MAX_JOBS} different ids, separated by commas"


LongTable = need_slot("slots for tables of results", total=4, share=2)
"""Dependency of the endpoint whose answer may take some megabytes, and more while it is made."""


@router.get("/compare")
@may_answer("not-found")
@runs_in(LISTS)
def compare(
    ids: Annotated[str, Query(max_length=1000, description=f"ids of the jobs: {_VALID}")],
    database: Annotated[Database, depend_on(Database)],
    principal: Viewer,
) -> Comparison:
    """Compare jobs: the settings in which they differ, and their final figures with the best one of each.

    Jobs that differ in `run.seed` alone, or in the label `seed` too, are one group: its figures are means with 95 %
    intervals by Student's t. Differences count from the group of the first job, the baseline: seed by seed if both
    have the same seeds, else by Welch's t, and for single jobs by the choice of the evaluation rows. Their intervals
    hold together with 95 %, since the best of several may be so by luck.
    """
    names = [name.strip() for name in ids.split(",")]
    if not 2 <= len(set(names)) == len(names) <= MAX_JOBS:
        raise invalid_request([FieldError("ids", f"has {len(set(names))} different ids of {len(names)}", _VALID)])
    with database.read() as session:
        jobs, repository = [get_visible_job(session, name, principal) for name in names], JobRepository(session)
        return compare_jobs(
            [Candidate(job, repository.get_document(job.id), repository.get_labels(job.id)) for job in jobs]
        )


@router.get("/results", dependencies=[LongTable])
@runs_in(LISTS)
def list_results(
    database: Annotated[Database, depend_on(Database)],
    principal: Viewer,
    label: LabelFilter = None,
    q: Annotated[str | None, Query(min_length=1, max_length=100, description="as for the list of jobs")] = None,
    limit: Annotated[int, Query(ge=1, le=1000)] = 1000,
) -> ResultTable:
    """Return settings, labels and final figures of many jobs by columns, newest first.

    Settings and labels that are the same in all of them are left out. Fewer jobs than match come if their documents are
    long.
    """
    chosen = JobFilter(labels=tuple(parse_label(text) for text in label or ()), text=q)
    with database.read() as session:
        lists = JobLists(session)
        rows = lists.list_page(chosen, visible_owner=principal.visible_owner, before=None, limit=limit + 1)
        return make_table(session, rows[:limit], has_more=len(rows) > limit)
