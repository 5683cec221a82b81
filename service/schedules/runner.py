"""Submission of the jobs of schedules that are due, by the leader."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any, cast

import structlog
from sqlalchemy.exc import DBAPIError

from dlrm.config import ConfigError, format_count
from service.access.principal import Principal, Role
from service.database import Database
from service.database.failures import are_values_refused
from service.http.problems import ProblemError
from service.jobs.paths import is_about_missing_files
from service.jobs.service import JobService, Submission
from service.keys.repository import KeyRepository
from service.keys.service import RefusedError, check_key
from service.leader.leadership import Leadership
from service.schedules.models import Schedule
from service.schedules.placeholders import Moment, NothingNewError, fill_document, uses_previous
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
            self._run(schedule.id)

    def _run(self, schedule_id: str) -> None:
        """Submit the job of a schedule whose time has come, or say why there is none, and find its next time."""
        at = now()
        with self._database.read() as session:
            # Again: it may have been changed or removed while others had their turn.
            schedule = ScheduleRepository(session).get(schedule_id)
        if schedule is None or schedule.next_at is None or schedule.next_at > at:
            return
        values: dict[str, Any] = {"last_due_at": schedule.next_at}
        next_at, pauses = None, False
        try:
            due_at, next_at, num_missed = _find_times(schedule, schedule.next_at, at)
            values["last_due_at"] = due_at
            job_id, remark = self._submit(schedule, due_at, num_missed)
            values |= {"last_job_id": job_id, "last_job_due_at": due_at, "last_result": f"submitted {job_id}{remark}"}
        except _NoTimesError as error:
            pauses, values["last_result"] = True, f"paused, since it has no times: {error}; change it to resume it"
        except RefusedError as error:
            pauses, values["last_result"] = True, f"paused, since its key is refused: {error}"
        except (_SkippedError, NothingNewError) as error:
            values["last_result"] = f"skipped: {_describe(error)}"
        except (ConfigError, ProblemError) as error:
            values["last_result"] = f"refused: {_describe(error)}"
        except Exception as error:
            if isinstance(error, DBAPIError) and not are_values_refused(error):
                # Nothing is noted: the next round tries again.
                raise
            # Catches everything: a schedule must not hold up the others.
            log.error("schedule_failed", schedule=schedule.id, exc_info=error)
            values["last_result"] = f"failed: {type(error).__name__}; the log of the service has more"
        log.info("schedule_due", schedule=schedule.id, due_at=str(values["last_due_at"]), result=values["last_result"])
        with self._leadership.write() as session:
            schedules = ScheduleRepository(session)
            current = schedules.lock(schedule.id)
            # Whoever changed, paused or ran it meanwhile has given it another next time, which stays.
            if current is not None and current.next_at == schedule.next_at:
                values["is_paused"] = pauses or current.is_paused
                values["next_at"] = None if values["is_paused"] else next_at
            schedules.update(schedule.id, **values)

    def _submit(self, schedule: Schedule, due_at: datetime, num_missed: int) -> tuple[str, str]:
        """Submit the job for one time, and return its id and a remark; the one that is there already, if there is one.

        Raises RefusedError, _SkippedError, NothingNewError, ConfigError and ProblemError.
        """
        principal, previous_id = self._look_up(schedule)
        moment = Moment(due_at, parse_zone(schedule.time_zone), previous_id, schedule.previous_due_at)
        document = label(fill_document(schedule.document, moment), schedule)
        remark = ""
        if previous_id != schedule.previous_job_id and uses_previous(schedule.document):
            remark = f"; its previous job {schedule.previous_job_id} was removed"
        missed = f"; {format_count(num_missed, 'earlier time')} passed while the service was down" if num_missed else ""
        note = f"schedule {schedule.name}, due {due_at:%Y-%m-%d %H:%M} UTC{missed}{remark}"
        key = f"{schedule.id} {due_at.isoformat()}"
        try:
            return self._submit_existing(Submission(document, principal, key, schedule_note=note), schedule), remark
        except (ConfigError, ProblemError, _SkippedError) as error:
            if remark:
                error.add_note(f"{remark}: name another one as previous_job_id (PATCH)")
            raise

    def _submit_existing(self, submission: Submission, schedule: Schedule) -> str:
        """Submit a job without the files that are missing, and return its id."""
        try:
            job, _ = self._jobs.submit(submission)
        except ConfigError as error:
            # Of a day without rows there may be no files: the others are trained on.
            rest = _leave_out_missing(submission.document, schedule.document, error)
            job, _ = self._jobs.submit(replace(submission, document=rest))
        return job.id

    def _look_up(self, schedule: Schedule) -> tuple[Principal, str | None]:
        """Return the sender of a schedule's jobs, with the rights of a submitter, and its previous job if still there.

        Raises RefusedError if its key is refused, and _SkippedError if its last job has not ended.
        """
        with self._database.read() as session:
            key, jobs = check_key(KeyRepository(session).get(schedule.key_id), now()), JobRepository(session)
            last, previous = (
                None if job_id is None else jobs.get(job_id)
                for job_id in (schedule.last_job_id, schedule.previous_job_id)
            )
        if last is not None and last.state not in ENDED:
            raise _SkippedError(f"{last.id} is still {last.state}")
        name = key.name if key.owner == schedule.owner else schedule.owner
        principal = Principal(key.id, name, schedule.owner, Role.SUBMITTER)
        return principal, None if previous is None or previous.deleting_at is not None else previous.id


class _SkippedError(Exception):
    """Error raised where a time passes without a job."""


class _NoTimesError(Exception):
    """Error raised where the times of a schedule cannot be found."""


def _describe(error: Exception) -> str:
    return "".join([str(error), *getattr(error, "__notes__", [])])


def _find_times(schedule: Schedule, next_at: datetime, at: datetime) -> tuple[datetime, datetime, int]:
    """Return the due time, the next one, and the number of missed times. Raises _NoTimesError.

    They were valid once. But a zone goes with an update of the host, or was never known on this one.
    """
    try:
        zone = parse_zone(schedule.time_zone)
        due_at = max(next_at, find_last(schedule.cron, zone, at))
        return due_at, find_next(schedule.cron, zone, at), count_times(schedule.cron, zone, next_at, due_at)
    except Exception as error:
        # Catches everything: a schedule must not hold up the others.
        log.error("schedule_has_no_times", schedule=schedule.id, exc_info=error)
        raise _NoTimesError(str(error) or type(error).__name__) from error


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
