"""Commands that look at jobs of the service: `dlrm jobs` and `show`."""

import re
from datetime import UTC, datetime, timedelta
from http import HTTPStatus
from itertools import islice
from typing import Annotated

import typer
from rich.console import Console

from cli.commands.completion import complete_labels
from cli.commands.options import AsJson, JobId
from cli.commands.service_access import connect
from cli.local.console import console_on, print_heading, print_warnings
from cli.local.errors import BadInputError
from cli.render.advice import print_job_advice
from cli.render.job_tables import make_derived_table, make_events_table, make_job_table, make_jobs_table
from cli.render.quality import print_comparison
from cli.render.tables import print_items
from service.client import Client, ServiceError

_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


def jobs(
    state: Annotated[
        list[str] | None,
        typer.Option(help="Only jobs in this state, such as RUNNING; may be repeated.", show_default=False),
    ] = None,
    label: Annotated[
        list[str] | None,
        typer.Option(
            help="Only jobs with this label, such as team:ads; may be repeated.",
            show_default=False,
            autocompletion=complete_labels,
        ),
    ] = None,
    owner: Annotated[str | None, typer.Option(help="Only jobs of this owner; for admins.", show_default=False)] = None,
    since: Annotated[
        str | None, typer.Option(help="Only jobs submitted since then: 6h, 2d, 2026-03-01.", show_default=False)
    ] = None,
    until: Annotated[str | None, typer.Option(help="Only jobs submitted before then.", show_default=False)] = None,
    search: Annotated[
        str | None,
        typer.Option(
            help="Only jobs with this text in the name, the owner, the id or a label's value.", show_default=False
        ),
    ] = None,
    limit: Annotated[int, typer.Option(min=1, help="Largest number of jobs to list.")] = 20,
    as_json: AsJson = False,
) -> None:
    """List the jobs of the service, newest first.

    All filters can be combined. With --json, each job is one line of JSON.

        dlrm jobs --state RUNNING

        dlrm jobs --since 2d --search ads

        dlrm jobs --json --limit 100 | jq -r .id
    """
    now = datetime.now(UTC)
    after = None if since is None else parse_time(since, "--since", now)
    before = None if until is None else parse_time(until, "--until", now)
    with connect() as client:
        found = client.jobs(
            state=state, label=label, owner=owner, created_after=after, created_before=before, search=search
        )
        print_items(islice(found, limit), make_jobs_table, as_json=as_json)


def parse_time(text: str, option: str, now: datetime) -> datetime:
    """Parse a duration before `now`, or a date with or without a time, which is local if it names no zone.

    option: name of the option, for the error message. Raises BadInputError.
    """
    duration = re.fullmatch(r"(\d+)([smhdw])", text, re.ASCII)
    try:
        if duration:
            return now - timedelta(**{_UNITS[duration[2]]: int(duration[1])})
        date = datetime.fromisoformat(text)
        return date if date.tzinfo else date.astimezone()
    except (ValueError, OverflowError):
        valid = "30m, 6h, 2d, 1w, or a date such as 2026-03-01 or 2026-03-01T10:30"
        raise BadInputError(f"{option}: {text!r} is not a time (valid: {valid})") from None


def show(
    job_id: JobId,
    only_document: Annotated[
        bool, typer.Option("--document", help="Print its job document alone, without what has its default.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Show one job: state and reason, metrics, what to change, derived numbers, events.

    What to change comes from the noise of the gradient, the plan, the measured
    parts of a step, the quality of the model and the queue: each piece has its
    figures, and lines for the job document.

    Derived numbers are those that the service computed from the job document,
    each with its reason. Events are changes of state, and reports of the ranks.

    The line "run directory" says where the files of the run are: a path on the
    machine of the service, a bucket, or a directory of a volume of the cluster.
    With --json that is `files_at`, and `are_files_seen` says whether the service
    sees them there; `run_directory` is the path on the machines that train.

        dlrm show job_01J…

        dlrm show job_01J… --json | jq .state

        dlrm show job_01J… --json | jq -r .files_at

        dlrm show job_01J… --document > job.toml
    """
    with connect() as client:
        if only_document:
            found = client.document(job_id)
            typer.echo(found.model_dump_json() if as_json else found.toml, nl=as_json)
            return
        job = client.job(job_id)
        if as_json:
            typer.echo(job.model_dump_json())
            return
        console = console_on()
        console.print(make_job_table(job, client.attempts(job_id), next(client.checkpoints(job_id), None)))
        print_comparison(console, job.metrics)
        print_warnings(job.warnings, console)
        _print_advice(console, client, job_id)
        print_heading(console, "derived")
        console.print(make_derived_table(job.derived))
        print_heading(console, "events")
        console.print(make_events_table(client.events(job_id)))


def _print_advice(console: Console, client: Client, job_id: str) -> None:
    """Print what to change in a job, unless the service is an older one that gives no advice."""
    try:
        advice = client.advice(job_id)
    except ServiceError as error:
        if error.problem.status != HTTPStatus.NOT_FOUND:
            raise
        return
    print_job_advice(console, advice)
