"""Argument of the commands on one job: its id."""

import re
from typing import Annotated

import typer

from cli.local.errors import BadInputError


def _check_id(job_id: str) -> str:
    """Check that the id can be part of a URL, and return it. Raises BadInputError if it cannot."""
    if not re.fullmatch(r"[\w-]+", job_id, re.ASCII):
        raise BadInputError(f"JOB_ID: {job_id!r} is not a job id (valid: job_01J…, as listed by `dlrm jobs`)")
    return job_id


def _check_ids(job_ids: list[str]) -> list[str]:
    return [_check_id(job_id) for job_id in job_ids]


JobId = Annotated[
    str,
    typer.Argument(
        metavar="JOB_ID", help="Id of the job, as listed by `dlrm jobs`.", show_default=False, callback=_check_id
    ),
]
JobIds = Annotated[
    list[str],
    typer.Argument(
        metavar="JOB_ID...",
        help="Ids of jobs, as listed by `dlrm jobs`.",
        show_default=False,
        callback=_check_ids,
    ),
]
