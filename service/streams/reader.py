"""Reading of what has changed, once for all streams."""

import json
from collections import defaultdict
from collections.abc import Generator, Mapping, Set
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import structlog
from pydantic import BaseModel

from service.access.principal import Principal
from service.database import Database
from service.database.failures import is_database_away
from service.jobs.schemas import EventView
from service.jobs.service import JobService
from service.store.job_lists import JobLists
from service.store.job_repository import JobRepository
from service.store.run_facts import RunFacts
from service.store.states import HOLDING, JobState
from service.streams.watchers import Gone, Row

log = structlog.get_logger(__name__)

MAX_EVENTS = 2000
"""New events that one look reads; the next one goes on after them."""


@dataclass(frozen=True)
class Changes:
    """Changes since the last look."""

    newest_event: int
    """Id of the last event that was read."""
    job_ids: Set[str]
    """Ids of the jobs that may have changed."""
    events: Mapping[str, list[tuple[int, str]]]
    """Ids and JSON of the new events of each watched job, in their order."""
    details: Mapping[str, Row | None]
    """State of each watched job that may have changed; None if it was deleted."""
    rows: Mapping[str, Row | Gone] | None
    """Row of each job that may have changed, as lists have it; None for all if there are too many."""
    log_versions: Mapping[str, object]
    """Size of the logs of each watched job that has an attempt in progress."""


class ChangeReader:
    """Reads changes, for whoever may know of them: streams hand them to those alone."""

    def __init__(self, database: Database, jobs: JobService, facts: RunFacts) -> None:
        self._database = database
        self._jobs = jobs
        self._facts = facts

    def find_newest_event(self) -> int:
        """Return the id of the newest event; 0 if there is none."""
        with self._database.read() as session:
            return JobRepository(session).find_newest_event()

    def get_job(self, job_id: str, principal: Principal) -> Row:
        """Return a job with its document. Raises ProblemError if there is none that `principal` may know of."""
        return dump(self._jobs.get(job_id, principal))

    def list_events(self, job_id: str, after: int, limit: int) -> tuple[list[tuple[int, str]], bool]:
        """List ids and JSON of events of a job with ids above `after`; and return whether there are more."""
        with self._database.read() as session:
            events, has_more = JobRepository(session).list_events(job_id, after, limit)
        return [(event.id, EventView.model_validate(event).model_dump_json()) for event in events], has_more

    def read_rows(self, job_ids: Set[str]) -> dict[str, Row | Gone]:
        """Read the rows of jobs, as lists have them."""
        found: dict[str, Row | Gone] = {}
        if job_ids:
            found |= {row["id"]: row for row in self._jobs.view_rows(sorted(job_ids))}
        if missing := sorted(job_ids - found.keys()):
            with self._database.read() as session:
                owners = JobLists(session).find_owners(missing)
            found |= {job_id: Gone(owners.get(job_id)) for job_id in missing}
        return found

    def read(self, position: int, noted: Set[str], watched: Set[str], max_rows: int) -> Changes:
        """Read what has changed after the event `position`, and of the jobs `noted`.

        watched: jobs whose events and details are read. max_rows: number of changed jobs up to which rows are read.
        """
        with self._database.read() as session:
            jobs = JobRepository(session)
            new = jobs.list_new_events(position, MAX_EVENTS)
            chosen = [event_id for event_id, job_id in new if job_id in watched]
            events = defaultdict[str, list[tuple[int, str]]](list)
            for event in jobs.list_events_by_ids(chosen) if chosen else ():
                events[event.job_id].append((event.id, EventView.model_validate(event).model_dump_json()))
        changed = noted | {job_id for _, job_id in new}
        # What happens to other jobs moves those that wait.
        waiting = self._find_waiting(watched) if new else set[str]()
        # After the events: a state that is sent with them is as new as they are.
        rows: dict[str, Row | Gone] | None = {}
        if max_rows:
            rows = self.read_rows(changed) if len(changed) <= max_rows else None
        return Changes(
            newest_event=new[-1][0] if new else position,
            job_ids=changed,
            events=events,
            details=self._read_details((changed & watched) | waiting),
            rows=rows,
            log_versions=self._measure_logs(watched),
        )

    def _find_waiting(self, job_ids: Set[str]) -> set[str]:
        """Return the ids of the jobs that are in the queue."""
        if not job_ids:
            return set()
        with self._database.read() as session:
            jobs = JobRepository(session).list_by_ids(sorted(job_ids))
            return {job.id for job in jobs if job.state == JobState.QUEUED}

    def _read_details(self, job_ids: Set[str]) -> dict[str, Row | None]:
        """Read jobs with their documents; None for deleted ones. One that cannot be read holds up no other."""
        details: dict[str, Row | None] = {}
        for job_id in job_ids:
            with _leave_out(job_id):
                detail = self._jobs.view_detail(job_id)
                details[job_id] = None if detail is None else dump(detail)
        return details

    def _measure_logs(self, watched: Set[str]) -> dict[str, object]:
        if not watched:
            return {}
        with self._database.read() as session:
            running = [job for job in JobRepository(session).list_by_ids(sorted(watched)) if job.state in HOLDING]
        versions: dict[str, object] = {}
        for job in running:
            with _leave_out(job.id):
                versions[job.id] = (job.num_attempts, self._facts.measure_logs(job))
        return versions


@contextmanager
def _leave_out(job_id: str) -> Generator[None]:
    """Leave a job out whose files or rows cannot be read, unless the database is away."""
    try:
        yield
    except Exception as error:
        if is_database_away(error):
            raise
        log.warning("job_not_streamed", job=job_id, error=str(error).partition("\n")[0])


def dump(model: BaseModel) -> dict[str, Any]:
    """Convert a model to JSON values; a number that is not finite becomes null."""
    return json.loads(model.model_dump_json())
