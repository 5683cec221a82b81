"""Commands that look at or control jobs of the service: `dlrm jobs`, `show`, `logs`, `cancel`, `pause`, `resume`."""

import re
import time
from itertools import islice
from typing import Annotated

import typer

from service.cli.console import console_on, print_heading
from service.cli.display import derived_table, events_table, job_table, jobs_table
from service.cli.errors import BadInputError
from service.cli.text_format import printable
from service.client import Client, LogPart


def _checked_id(job_id: str) -> str:
    """Check that the id can be part of a URL, and return it. Raises BadInputError where it cannot."""
    if not re.fullmatch(r"[\w-]+", job_id, re.ASCII):
        raise BadInputError(f"JOB_ID: {job_id!r} is no id of a job (valid: job_01J…, as `dlrm jobs` shows it)")
    return job_id


JobId = Annotated[
    str,
    typer.Argument(metavar="JOB_ID", help="As `dlrm jobs` shows it.", show_default=False, callback=_checked_id),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]

LOG_POLL_SECONDS = 1.0
LAUNCH = "launch"


def jobs(
    state: Annotated[str | None, typer.Option(help="Such as RUNNING.", show_default=False)] = None,
    label: Annotated[str | None, typer.Option(help="Such as team:ads.", show_default=False)] = None,
    limit: Annotated[int, typer.Option(min=1, help="The newest so many.")] = 20,
    as_json: AsJson = False,
) -> None:
    """List the jobs of the service, newest first.

    --state and --label select jobs by their state and by their labels. With
    --json, each job is one line of JSON.

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
    """Show one job: state and reason, metrics, derived numbers, events.

    Derived numbers are those that the service computed from the job document,
    each with its reason. Events are the changes of state, and what the ranks
    reported.

        dlrm show job_01J…

        dlrm show job_01J… --json | jq .state
    """
    with Client() as client:
        job = client.job(job_id)
        if as_json:
            typer.echo(job.model_dump_json())
            return
        console = console_on()
        console.print(job_table(job, client.attempts(job_id), next(client.checkpoints(job_id), None)))
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
    """Print the log of one rank of a job.

    A rank is one worker process of the job. Every start of the job is an attempt,
    and has logs of its own. With --follow, new lines are printed as they come,
    also those of later attempts, unless --attempt selects one.

        dlrm logs job_01J… --tail 50 --follow

        dlrm logs job_01J… --rank launch --attempt 1
    """
    if not (rank == LAUNCH or rank.isdigit()):
        raise BadInputError(f"--rank: {rank!r} is neither a number nor `launch`")
    which = LAUNCH if rank == LAUNCH else int(rank)
    with Client() as client:
        part: LogPart | None = None
        while part is None or part.text or (follow and _has_more(client, job_id, part, attempt)):
            if part is None:
                part = client.logs(job_id, attempt=attempt, rank=which, tail_lines=tail)
            elif part.complete and not part.text:
                # The next attempt has begun, with a log of its own.
                part = client.logs(job_id, attempt=(part.attempt or 0) + 1, rank=which)
            else:
                part = client.logs(job_id, attempt=part.attempt, rank=which, offset=part.next_offset)
            typer.echo(printable(part.text, kept="\n\t"), nl=False)


def _has_more(client: Client, job_id: str, part: LogPart, attempt: int | None) -> bool:
    """Wait until there may be more to print after `part`, in this log or in that of a later attempt.

    Returns whether there is more; False where the attempt, or the job, has ended. attempt: number of the only attempt
    to follow; None follows the job from one attempt to the next.
    """
    while True:
        if not part.complete:
            time.sleep(LOG_POLL_SECONDS)
            return True
        if attempt is not None:
            return False
        job = client.job(job_id)
        if job.num_attempts > (part.attempt or 0):
            return True
        if job.has_ended:
            return False
        time.sleep(LOG_POLL_SECONDS)


def cancel(job_id: JobId) -> None:
    """Cancel a job: it ends as CANCELLED, after a checkpoint if it is running.

    The command does not wait for the end. It prints the id of the job and its
    present state.

        dlrm cancel job_01J…
    """
    with Client() as client:
        job = client.cancel(job_id)
    typer.echo(f"{job.id} {job.state}")


def pause(job_id: JobId) -> None:
    """Pause a running job: it stops after a checkpoint, and frees its cores and memory.

    The command does not wait for that. `dlrm resume` lets the job continue from
    the checkpoint.

        dlrm pause job_01J…
    """
    with Client() as client:
        job = client.pause(job_id)
    typer.echo(f"{job.id} {job.state}")


def resume(job_id: JobId) -> None:
    """Resume a paused job from its checkpoint, as soon as cores and memory are free.

    The job is queued again, and starts when its turn comes. The command does not
    wait for that.

        dlrm resume job_01J…
    """
    with Client() as client:
        job = client.resume(job_id)
    typer.echo(f"{job.id} {job.state}")
