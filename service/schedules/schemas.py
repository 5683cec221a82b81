"""Schedules as the API receives them."""

from typing import Annotated, Any

from pydantic import AfterValidator, ConfigDict, Field, StringConstraints
from pydantic_core import PydanticCustomError

from dlrm.config import Name
from service.http.body import Body
from service.schedules.times import find_next, parse_zone
from service.times import now

EXAMPLE: dict[str, Any] = {
    "name": "clicks",
    "cron": "0 2 * * *",
    "time_zone": "UTC",
    "document": {
        "data": {"train": ["day_*.tsv"]},
        "batch": {"global_size": 16384},
        "run": {"warm_start": {"from": "{previous_job}", "optimizer_state": True}},
        "resources": {"workers_per_node": 2, "memory": 2 * 2**30},
    },
}


def _check_cron(cron: str) -> str:
    try:
        find_next(cron, parse_zone("UTC"), now())
    except ValueError as error:
        message = "is no cron expression: {why} (such as 0 2 * * 1-5 for 02:00 on working days)"
        raise PydanticCustomError("cron", message, {"why": str(error)}) from None
    return cron


def _check_zone(name: str) -> str:
    try:
        parse_zone(name)
    except ValueError as error:
        raise PydanticCustomError("time_zone", "{why} here (such as Europe/Berlin)", {"why": str(error)}) from None
    return name


Cron = Annotated[str, Field(max_length=100), AfterValidator(_check_cron)]
TimeZone = Annotated[str, Field(max_length=64), AfterValidator(_check_zone)]
JobId = Annotated[str, StringConstraints(pattern=r"^job_[0-9A-HJKMNP-TV-Z]{26}$")]


class NewSchedule(Body):
    """A schedule to be made."""

    model_config = ConfigDict(json_schema_extra={"examples": [EXAMPLE]})

    name: Name
    """Name of the schedule, which its jobs have as the label `schedule`; an owner has one of a name."""
    cron: Cron
    """Cron expression of five fields: minute, hour, day of the month, month, day of the week."""
    time_zone: TimeZone = "UTC"
    """Time zone of the expression, and of `{due}` and `{day}` in the document, such as Europe/Berlin."""
    document: dict[str, Any]
    """Job document, whose texts may have the placeholders `{due}`, `{day}`, `{hour}` and `{previous_job}`."""
    previous_job_id: JobId | None = None
    """Job that `{previous_job}` stands for until a job of the schedule has succeeded; null: none."""


class ScheduleChanges(Body):
    """Changes of a schedule; null leaves a field as it is."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"is_paused": True}]})

    cron: Cron | None = None
    """Cron expression of five fields."""
    time_zone: TimeZone | None = None
    """Time zone of the expression and the document."""
    document: dict[str, Any] | None = None
    """Job document, with placeholders."""
    is_paused: bool | None = None
    """Whether nothing is submitted. Times that pass meanwhile are not made up for."""
    previous_job_id: JobId | None = None
    """Job that `{previous_job}` stands for from now on, instead of the last one with success."""
