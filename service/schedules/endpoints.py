"""Endpoints under /v1/schedules."""

from fastapi import APIRouter

from service.access.senders import Submitter, Viewer
from service.http.problem_kinds import may_answer
from service.http.route import ApiRoute
from service.schedules.schemas import NewSchedule, ScheduleChanges
from service.schedules.service import Schedules
from service.schemas import Page, Schedule

router = APIRouter(prefix="/v1/schedules", tags=["schedules"], route_class=ApiRoute)


@router.get("")
def list_schedules(schedules: Schedules, principal: Viewer) -> Page[Schedule]:
    """List the schedules by name: an admin sees all, others see the schedules of their owner."""
    return Page(items=schedules.list_visible(principal))


@router.post("", status_code=201)
@may_answer("conflict", "invalid-job")
def create_schedule(new_schedule: NewSchedule, schedules: Schedules, principal: Submitter) -> Schedule:
    """Make a schedule: its document is submitted at each time of the cron expression, for the sender's owner.

    A time is skipped while the last job has not ended, and several times that were missed are made up for by one job.
    """
    return schedules.create(new_schedule, principal)


@router.get("/{schedule_id}")
def get_schedule(schedule_id: str, schedules: Schedules, principal: Viewer) -> Schedule:
    """Return a schedule with its document, its next time, and the result of the last one."""
    return schedules.get(schedule_id, principal)


@router.patch("/{schedule_id}")
@may_answer("invalid-job")
def change_schedule(schedule_id: str, changes: ScheduleChanges, schedules: Schedules, principal: Submitter) -> Schedule:
    """Change, pause or resume a schedule. From then on its jobs are submitted with the key of the sender."""
    return schedules.change(schedule_id, changes, principal)


@router.delete("/{schedule_id}", status_code=204)
def remove_schedule(schedule_id: str, schedules: Schedules, principal: Submitter) -> None:
    """Remove a schedule. Its jobs stay."""
    schedules.remove(schedule_id, principal)


@router.post("/{schedule_id}/run", status_code=202)
@may_answer("conflict")
def run_schedule(schedule_id: str, schedules: Schedules, principal: Submitter) -> Schedule:
    """Make a schedule due at once, even if it is paused; its next time stays."""
    return schedules.run_now(schedule_id, principal)
