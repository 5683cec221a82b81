"""Submission of the jobs of schedules that are due, by the leader."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, cast

import structlog
from sqlalchemy.exc import DBAPIError

from dlrm.config import ConfigError, format_count
from service.access.principal import Principal, Role
from service.database import Database
from service.http.problems import ProblemError
from service.jobs.paths import is_about_missing_files
from service.jobs.service import JobService, Submission
from service.keys.repository import KeyRepository
from service.keys.service import RefusedError, check_key
from service.leader.leadership import Leadership
from service.schedules.models import Schedule
from service.schedules.placeholders import Moment, NothingNewError, fill_document
from service.schedules.repository import ScheduleRepository
from service.schedules.service import label
from service.schedules.times import count_times, find_last, find_next, parse_zone
from service.store.job_repository import JobRepository
from service.store.states import ENDED
from service.times import now

log = structlog.get_logger(__name__)

MAX_AT_ONCE = 10
"""Number of schedules that one round submits jobs of at most."""


class ScheduleRunner:
    def __init__(self, database: Database, leadership: Leadership, jobs: JobService) -> None:
        self._database = database
        self._leadership = leadership
        self._jobs = jobs

    def run_due(self) -> None:
        """Submit the jobs of all schedules that are due, and note successes of earlier ones.

        A job is submitted under an idempotency key of its schedule and time: however often the service stops between
        that and the note of it, there is one. Raises LeadershipLostError.
        """
        with self._leadership.write() as session:
            schedules = ScheduleRepository(session)
            for schedule in schedules.list_succeeded():
                previous = {"previous_job_id": schedule.last_job_id, "previous_due_at": schedule.last_job_due_at}
                schedules.update(schedule.id, **previous, last_job_due_at=None)
        with self._database.read() as session:
            due = ScheduleRepository(session).list_due(now(), MAX_AT_ONCE)
        for schedule in due:
            assert schedule.next_at is not None
            self._run(schedule, schedule.next_at)

    def _run(self, schedule: Schedule, next_at: datetime) -> None:
        """Submit the job of a schedule whose time has come, or say why there is none, and find its next time."""
        zone, at = parse_zone(schedule.time_zone), now()
        due_at = max(next_at, find_last(schedule.cron, zone, at))
        values: dict[str, Any] = {"last_due_at": due_at}
        values["next_at"] = None if schedule.is_paused else find_next(schedule.cron, zone, at)
        try:
            num_missed = count_times(schedule.cron, zone, next_at, due_at)
            job_id = self._submit(schedule, due_at, num_missed)
            values |= {"last_job_id": job_id, "last_job_due_at": due_at, "last_result": f"submitted {job_id}"}
        except RefusedError as error:
            values |= {"is_paused": True, "next_at": None, "last_result": f"paused, since its key is refused: {error}"}
        except (_SkippedError, NothingNewError) as error:
            values["last_result"] = f"skipped: {error}"
        except (ConfigError, ProblemError) as error:
            values["last_result"] = f"refused: {error}"
        except DBAPIError:
            # Nothing is noted: the next round tries again.
            raise
        except Exception as error:
            # Catches everything: a schedule must not hold up the others.
            log.error("schedule_failed", schedule=schedule.id, exc_info=error)
            values["last_result"] = f"failed: {type(error).__name__}; the log of the service has more"
        log.info("schedule_due", schedule=schedule.id, due_at=due_at.isoformat(), result=values["last_result"])
        with self._leadership.write() as session:
            ScheduleRepository(session).update(schedule.id, **values)

    def _submit(self, schedule: Schedule, due_at: datetime, num_missed: int) -> str:
        """Submit the job for one time, and return its id; the one that is there already, if there is one.

        Raises RefusedError, _SkippedError, NothingNewError, ConfigError and ProblemError.
        """
        principal = self._find_principal(schedule)
        key = f"{schedule.id} {due_at.isoformat()}"
        self._check_last(schedule)
        moment = Moment(
            due_at,
            parse_zone(schedule.time_zone),
            schedule.previous_job_id,
            schedule.previous_due_at,
        )
        document = label(fill_document(schedule.document, moment), schedule)
        missed = f"; {format_count(num_missed, 'earlier time')} passed while the service was down" if num_missed else ""
        note = f"schedule {schedule.name}, due {due_at:%Y-%m-%d %H:%M} UTC{missed}"
        try:
            job, _ = self._jobs.submit(Submission(document, principal, key, schedule_note=note))
        except ConfigError as error:
            # Of a day without rows there may be no files: the others are trained on.
            rest = _leave_out_missing(document, schedule.document, error)
            job, _ = self._jobs.submit(Submission(rest, principal, key, schedule_note=note))
        return job.id

    def _find_principal(self, schedule: Schedule) -> Principal:
        """Return the sender of a schedule's jobs: its key, with the rights of a submitter. Raises RefusedError."""
        with self._database.read() as session:
            key = check_key(KeyRepository(session).get(schedule.key_id), now())
        name = key.name if key.owner == schedule.owner else schedule.owner
        return Principal(key.id, name, schedule.owner, Role.SUBMITTER)

    def _check_last(self, schedule: Schedule) -> None:
        """Raise _SkippedError if the last job of a schedule has not ended."""
        if schedule.last_job_id is None:
            return
        with self._database.read() as session:
            last = JobRepository(session).get(schedule.last_job_id)
        if last is not None and last.state not in ENDED:
            raise _SkippedError(f"{last.id} is still {last.state}")


class _SkippedError(Exception):
    """Error raised where a time passes without a job."""


def _leave_out_missing(document: Mapping[str, Any], template: Mapping[str, Any], error: ConfigError) -> dict[str, Any]:
    """Return a document without the entries of data.train and data.eval that came from placeholders and have no files.

    Raises the error again if something else is wrong, and _SkippedError if no training rows are left.
    """
    missing = {fault.field for fault in error.errors if is_about_missing_files(fault)}
    data, removed = dict[str, Any](document["data"]), 0
    for name in ("train", "eval"):
        written = cast("list[str]", template["data"].get(name) or [])
        entries = cast("list[str]", data.get(name) or [])
        kept = [
            entry for number, entry in enumerate(entries) if entry in written or f"data.{name}.{number}" not in missing
        ]
        if len(kept) < len(entries):
            data[name], removed = kept, removed + len(entries) - len(kept)
    if removed < len(error.errors):
        raise error
    if not data["train"]:
        raise _SkippedError("no rows have come since the last job: " + error.errors[0].message)
    return {**document, "data": data}
