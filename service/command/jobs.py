"""`dlrm jobs`, `show`, `logs` and `cancel`."""

import time
from itertools import islice
from typing import Annotated

import typer

from service.client import Client, LogPart
from service.command.consoles import console_on, print_heading
from service.command.display import derived_table, events_table, job_table, jobs_table
from service.command.errors import BadInputError
from service.command.words import printable

JobId = Annotated[str, typer.Argument(metavar="JOB_ID", help="As `dlrm jobs` shows it.", show_default=False)]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]

LOG_POLL_SECONDS = 1.0
LAUNCH = "launch"


def jobs(
    state: Annotated[str | None, typer.Option(help="Such as RUNNING.", show_default=False)] = None,
    label: Annotated[str | None, typer.Option(help="Such as team:ads.", show_default=False)] = None,
    limit: Annotated[int, typer.Option(min=1, help="The newest so many.")] = 20,
    as_json: AsJson = False,
) -> None:
    """List jobs, newest first.

    dlrm jobs --state RUNNING

    dlrm jobs --json --limit 100 | jq -r .id
    """
    with Client() as client:
        found = islice(client.jobs(state=state, label=label), limit)
        if as_json:
            for job in found:
                typer.echo(job.model_dump_json())
        else:
            console_on().print(jobs_table(found))


def show(job_id: JobId, as_json: AsJson = False) -> None:
    """Show one job: state and reason, figures, derived numbers, events."""
    with Client() as client:
        job = client.job(job_id)
        if as_json:
            typer.echo(job.model_dump_json())
            return
        console = console_on()
        console.print(job_table(job))
        print_heading(console, "derived")
        console.print(derived_table(job.derived))
        print_heading(console, "events")
        console.print(events_table(client.events(job_id)))


def logs(
    job_id: JobId,
    rank: Annotated[str, typer.Option(help="A rank, or `launch` for the process that starts them.")] = "0",
    attempt: Annotated[
        int | None, typer.Option(min=1, help="Which start of the job.", show_default="the last one")
    ] = None,
    tail: Annotated[int | None, typer.Option(min=1, help="The last so many lines.", show_default=False)] = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on until the job has ended.")] = False,
) -> None:
    """Print the log of one rank.

    dlrm logs job_01J… --tail 50 --follow

    dlrm logs job_01J… --rank launch --attempt 1
    """
    if not (rank == LAUNCH or rank.isdigit()):
        raise BadInputError(f"--rank: {rank!r} is neither a number nor `launch`")
    which = LAUNCH if rank == LAUNCH else int(rank)
    with Client() as client:
        part: LogPart | None = None
        while part is None or part.text or (follow and not part.complete):
            if part is None:
                part = client.logs(job_id, attempt=attempt, rank=which, tail_lines=tail)
            else:
                if not part.text:
                    time.sleep(LOG_POLL_SECONDS)
                part = client.logs(job_id, attempt=part.attempt, rank=which, offset=part.next_offset)
            typer.echo(printable(part.text, kept="\n\t"), nl=False)


def cancel(job_id: JobId) -> None:
    """Stop a job; it ends as CANCELLED after a checkpoint."""
    with Client() as client:
        job = client.cancel(job_id)
    typer.echo(f"{job.id} {job.state}")
